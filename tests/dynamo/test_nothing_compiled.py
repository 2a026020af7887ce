"""What compiled nothing, or stopped being compiled, fails, and the message names the cause."""
# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, warn-return-any=False

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_compileguard.spec import CompileCheck
from tests.conftest import RunSuite
from tests.dynamo import break_functions
from tests.dynamo.checked import Checked, check
from tests.dynamo.torch_versions import SILENT

pytestmark = pytest.mark.usefixtures("compiler_loaded")

X = torch.ones(4)
TABLE = torch.ones(4)


def plus_one(x: Tensor) -> Tensor:
    return x.sin() + 1


def same(x: Tensor) -> Tensor:
    return x


def five(_x: Tensor) -> int:
    return 5


def generator(x: Tensor) -> Iterator[Tensor]:
    yield x.sin()


@torch.compiler.disable
def disabled(x: Tensor) -> Tensor:
    return x.sin()


def calls_disabled(x: Tensor) -> Tensor:
    return disabled(x)


def raising(_graph: Any, _inputs: Any) -> Any:
    raise RuntimeError("this backend knows no sine")


def no_sine(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
    if any("sin" in node.name for node in graph.graph.nodes):
        raise RuntimeError("this backend knows no sine")
    return graph.forward


def break_then_sine(x: Tensor) -> Tensor:
    y = x.cos()
    torch._dynamo.graph_break()
    return y.sin()


@torch.compiler.disable(recursive=False)
def attempt(x: Tensor) -> Tensor:
    try:
        return plus_one(x)
    except RuntimeError:
        return x.sin() + 1


def catching(x: Tensor) -> Tensor:
    return attempt(x.cos())


class PassOn(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        return func(*args, **(kwargs or {}))


def in_place(module: nn.Module) -> nn.Module:
    module.compile(backend="eager")
    return module


def fails(seen: Checked, *causes: str) -> None:
    """The check fails, nothing was compiled, and the user reads why."""
    assert seen.verdict.outcome == "failed"
    assert seen.facts.graphs == 0
    for cause in ("nothing was compiled", *causes):
        assert cause in seen.told


@pytest.mark.parametrize("function", (same, five))
def test_no_tensor_operation(function: Callable[..., Any]) -> None:
    fails(check(function, (X,)), "it has no tensor operation that could be compiled")


@pytest.mark.parametrize("name", ("loop_gb", "try_gb", "with_custom", "generator", "skipped_step"))
def test_break_where_dynamo_cannot_resume(name: str) -> None:
    seen = check(getattr(break_functions, name), (X,))
    if name in SILENT:
        fails(seen, "the target was traced")
        return
    (site,) = seen.facts.break_sites

    fails(seen, "frame skipped", site.reason, f"break_functions.py:{site.line}")


def looked_up(x: Tensor, t: Tensor) -> Tensor:
    here = TABLE[t]
    before = TABLE[t - 1] if t >= 1 else TABLE[0]
    return x * here + before


def test_frame_given_up_since_its_backend_fails_is_advised_on_what_the_backend_names() -> None:
    spec = CompileCheck(backend="aot_eager")
    seen = check(looked_up, (X, torch.tensor(2)), spec=spec, locates=False)

    line = looked_up.__code__.co_firstlineno + 1
    fails(
        seen,
        "Backend compiler exception",
        f":{line} in looked_up: here = TABLE[t]",
        "the backend fails where a number is read out of a tensor",
    )
    assert "loop, try, with block" not in seen.told


def test_generator_function() -> None:
    fails(check(generator, (X,)), "Dynamo never looked at the target: a generator")


def test_backend_that_raises() -> None:
    seen = check(plus_one, (X,), backend=raising)

    assert seen.verdict.outcome == "failed"
    assert seen.facts.graphs == 0
    assert "RuntimeError: this backend knows no sine" in seen.told


def test_backend_that_raises_while_errors_are_suppressed() -> None:
    with torch._dynamo.config.patch(suppress_errors=True):
        seen = check(plus_one, (X,), (X,), backend=raising)

    fails(
        seen,
        "error suppressed",
        "backend='raising' raised: RuntimeError: this backend knows no sine",
        "raised at ",
        'in raising    raise RuntimeError("this backend knows no sine")',
        "torch._dynamo.config.suppress_errors",
    )
    assert "loop, try, with block" not in seen.told


def test_suppressed_error_is_not_accepted_with_a_graph_break() -> None:
    with torch._dynamo.config.patch(suppress_errors=True):
        seen = check(break_then_sine, (X,), backend=no_sine, max_graph_breaks=1)

    assert seen.facts.graphs == 1
    assert seen.verdict.outcome == "failed"
    assert "fallbacks 1 > 0" in seen.told
    assert "error suppressed" in seen.told
    assert "in no_sine" in seen.told


def test_error_that_the_target_catches_is_told_as_caught() -> None:
    seen = check(catching, (X,), backend=no_sine, max_graph_breaks=1)

    assert seen.verdict.outcome == "failed"
    assert "error caught" in seen.told
    assert "this backend knows no sine" in seen.told
    assert "suppress_errors" not in seen.told


def test_error_of_the_call_itself_is_no_fallback() -> None:
    def reshape(x: Tensor, size: int) -> Tensor:
        return x.sin().view(size)

    def expected(call: int) -> contextlib.AbstractContextManager[object]:
        return pytest.raises(RuntimeError) if call else contextlib.nullcontext()

    seen = check(reshape, (X, 4), (X, 3), around=expected)
    assert not seen.facts.fallbacks
    assert seen.facts.error is None


def test_backend_that_gives_up_is_told_as_one_break() -> None:
    def unable(_graph: Any, _inputs: Any) -> Any:
        raise torch._subclasses.fake_tensor.UnsupportedOperatorException(torch.ops.aten.sin.default)

    seen = check(plus_one, (X,), backend=unable)

    fails(seen, "Backend compiler exception", "in plus_one")
    assert len(seen.facts.break_sites) == 1


def test_config_disable() -> None:
    with torch._dynamo.config.patch(disable=True):
        seen = check(plus_one, (X,))
    fails(seen, "torch.compile is switched off (TORCH_COMPILE_DISABLE or config.disable)")


@pytest.mark.parametrize("stance", ("force_eager", "eager_on_recompile", "fail_on_recompile"))
def test_foreign_stance(stance: str) -> None:
    calls = [(torch.ones(4),), (torch.ones(5),)]
    seen = check(plus_one, *calls, around=lambda _: torch.compiler.set_stance(stance))

    assert seen.verdict.outcome == "failed"
    assert seen.facts.graphs == 0
    assert f"torch.compiler.set_stance('{stance}') is active" in seen.told


def test_stance_that_hides_recompiles_of_compiled_code() -> None:
    stances = (contextlib.nullcontext, lambda: torch.compiler.set_stance("eager_on_recompile"))
    calls = [(torch.ones(4),), (torch.ones(5),)]
    seen = check(plus_one, *calls, around=lambda i: stances[i]())

    assert seen.verdict.outcome == "failed"
    assert not seen.facts.recompiles
    assert "1 of 2 calls ran no compiled code: 2" in seen.told
    assert "set_stance('eager_on_recompile')" in seen.told


@pytest.mark.parametrize(
    ("options", "told"),
    (
        ({"force_backend": "eager"}, "set_stance(force_backend='eager') is active"),
        ({"skip_guard_eval_unsafe": True}, "set_stance(skip_guard_eval_unsafe=True) is active"),
    ),
)
def test_stance_that_compiles_something_else(options: dict[str, Any], told: str) -> None:
    seen = check(plus_one, (X,), around=lambda _: torch.compiler.set_stance("default", **options))
    assert seen.verdict.outcome == "failed"
    assert told in seen.told


def test_dispatch_mode() -> None:
    seen = check(plus_one, (X,), around=lambda _: PassOn())
    fails(seen, "a torch dispatch mode is active (PassOn)")


def test_calls_after_the_recompile_limit_are_named() -> None:
    calls = [(torch.ones(size),) for size in (4, 5, 6, 7, 8, 4)]
    with torch._dynamo.config.patch(recompile_limit=2):
        seen = check(plus_one, *calls, dynamic=False, max_recompiles=9)

    assert seen.verdict.outcome == "failed"
    assert seen.facts.limit_hit
    assert "torch's recompile limit was reached" in seen.told
    assert "3 of 6 calls ran no compiled code: 3, 4, 5" in seen.told


def test_error_that_speaks_of_another_limit_is_none_of_recompiles() -> None:
    def full(_graph: Any, _inputs: Any) -> Any:
        raise RuntimeError("the limit of this backend is 3 operators")

    with torch._dynamo.config.patch(suppress_errors=True):
        seen = check(plus_one, (X,), backend=full)

    assert not seen.facts.limit_hit
    fails(seen, "the limit of this backend is 3 operators")


def test_function_that_only_calls_a_disabled_one() -> None:
    fails(
        check(calls_disabled, (X,)),
        "no tensor operation stands before or after its break",
        "Skip calling `torch.compiler.disable()`d function",
    )


def test_target_marked_as_disabled() -> None:
    seen = check(disabled, (X,))
    marked = "the target is marked with torch.compiler.disable"
    if seen.facts.graphs:  # torch before 2.11 compiles it all the same
        assert (seen.verdict.outcome, marked in seen.told) == ("failed", True)
    else:
        fails(seen, marked)


@pytest.mark.parametrize("make", (lambda: nn.Sequential(nn.Linear(4, 4)), lambda: nn.Linear(4, 4)))
def test_class_of_torch_compiled_in_place(make: Callable[[], nn.Module]) -> None:
    module = in_place(make())
    compiles = compiles_in_place(make())
    seen = check(module, (X,), backend=None)

    if compiles:
        assert (seen.verdict.outcome, seen.facts.graphs) == ("passed", 1)
    else:
        fails(seen, "a module of one of torch's own classes that is compiled in place")


def test_wrapper_around_a_module_that_is_compiled_in_place() -> None:
    wrapped = torch.compile(in_place(break_functions.Inner()), backend="aot_eager")
    seen = check(wrapped, (X,), backend=None)

    assert (seen.verdict.outcome, seen.facts.graphs) == ("failed", 2)
    assert "hindered: torch.compile has no effect on a module that is compiled in pl" in seen.told


def compiles_in_place(module: nn.Module) -> bool:
    """Ask torch without the plugin: older ones compile nothing and say nothing."""
    graphs = []

    def count(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    module.compile(backend=count)
    module(X)
    torch.compiler.reset()
    return bool(graphs)


def test_frame_that_its_first_call_made_dynamo_skip() -> None:
    def add(x: Tensor, y: Tensor | None) -> Tensor:
        return x if y is None else x + y

    fails(check(add, (X, None), (X, X)), "no tensor operation that could be compiled")


@pytest.mark.parametrize("name", ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"))
def test_environment_variable_that_switches_off(name: str, tmp_path: Any) -> None:
    suite = tmp_path / "test_off.py"
    suite.write_text(
        "import torch\n"
        "from pytest_compileguard import compile_check\n"
        "@compile_check(backend='eager')\n"
        "def test_off(compileguard):\n"
        "    compileguard(torch.sin)(torch.ones(3))\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(suite)],
        env={**os.environ, name: "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "nothing was compiled" in done.stdout
    assert "torch.compile is switched off" in done.stdout
    assert name in done.stdout.partition("check that the target")[0]


def test_variable_that_torch_reads_no_more_hinders_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")  # torch read it when it was imported
    seen = check(plus_one, (X,))
    assert (seen.verdict.outcome, seen.facts.graphs) == ("passed", 1)


@pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning")
def test_profiler_of_the_user_makes_numbers_unreliable() -> None:
    def around(_call: int) -> contextlib.AbstractContextManager[object]:
        return torch.profiler.profile()

    unlimited = check(plus_one, (X,), (X,), around=around)
    limited = check(plus_one, (X,), (X,), around=around, max_graph_breaks=0)
    told = "a profiler was active in call 1, 2, so whether compiled code ran can't be seen"

    assert unlimited.facts.unreliable == (told,)
    assert unlimited.verdict.outcome == "inconclusive"
    assert limited.verdict.outcome == "failed"
    assert f"can't be trusted: {told}" in limited.told


def test_many_instances_of_one_class_in_one_test() -> None:
    instances = [break_functions.Scaled(n) for n in range(14)]

    def call(x: Tensor, which: int) -> Tensor:
        return instances[which](x)

    single = [check(instance, (X,)) for instance in instances]
    assert [seen.facts.graphs for seen in single] == [1] * 14
    assert not any(seen.facts.recompiles for seen in single)
    together = check(call, *[(X, n) for n in range(14)])
    # In one target they do hit the limit of torch: that is what a user would meet.
    assert together.facts.limit_hit


INSTANCES = """
import pytest
import torch
from pytest_compileguard import compile_check

class Scaled(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor + 1

@compile_check(backend="eager", max_recompiles=0, max_graph_breaks=0)
def test_one(compileguard):
    for factor in range(14):
        compileguard(Scaled(factor))(torch.ones(3))

@compile_check(backend="eager", max_recompiles=0, max_graph_breaks=0)
@pytest.mark.parametrize("factor", range(14))
def test_many(compileguard, factor):
    compileguard(Scaled(factor))(torch.ones(3))
"""


def test_fourteen_instances_are_all_compiled(run_suite: RunSuite) -> None:
    run = run_suite(INSTANCES)

    run.result.assert_outcomes(passed=15)
    assert len(run.checks) == 28
    assert {check["observed"]["graphs"] for check in run.checks} == {1}


def test_precompiled_results_do_not_stand_for_a_trace() -> None:
    with torch._dynamo.config.patch(caching_precompile=True):
        seen = check(break_functions.one_gb, (X,), backend="aot_eager", max_graph_breaks=0)

    assert (seen.facts.graphs, len(seen.facts.break_sites), seen.facts.error) == (2, 1, None)
    assert seen.verdict.outcome == "failed"


def test_target_that_was_compiled_to_be_stored_is_refused() -> None:
    with torch._dynamo.config.patch(caching_precompile=True):
        compiled = torch.compile(break_functions.clean, backend="aot_eager")
        seen = check(compiled, (X,))

    assert seen.verdict.outcome == "failed"
    assert "caching_precompile" in seen.told


def test_an_error_path_alone_is_told_as_such() -> None:
    guarded = nn.Linear(4, 4)

    def swallowing(index: int) -> contextlib.AbstractContextManager[object]:
        del index
        return pytest.raises(RuntimeError)

    seen = check(guarded, (torch.ones(3, 5),), (torch.ones(2, 5),), around=swallowing)
    fails(seen, "each call raised RuntimeError on both sides before anything was compiled")
    assert "add a call that returns" in seen.told
    assert "no tensor operation" not in seen.told


def written_and_added(a: Tensor, b: Tensor) -> Tensor:
    return a.mul_(2) + b


def fails_for_three(gm: Any, inputs: Any) -> Any:
    if any(isinstance(x, Tensor) and x.shape == (3,) for x in inputs):
        raise RuntimeError("not three")
    return gm


@pytest.mark.parametrize("sizes", ((2, 3), (3, 2)))
def test_one_call_that_fails_to_compile_is_not_told_as_nothing_compiled(
    sizes: tuple[int, ...],
) -> None:
    calls = ((torch.ones(n), torch.ones(n)) for n in sizes)
    spec = CompileCheck(backend=fails_for_three, dynamic=False, max_graph_breaks=0)
    seen = check(written_and_added, *calls, spec=spec, max_compile_time_s=9)

    assert seen.facts.graphs == 1
    assert "not three" in seen.told
    assert "nothing was compiled" not in seen.told
    assert "graph breaks (not every call could be compiled)" in seen.told


def test_marked_size_that_code_specialises_leaves_the_numbers_trusted() -> None:
    x = torch.ones(3)
    torch._dynamo.mark_dynamic(x, 0)
    seen = check(lambda x: x.sin() if x.shape[0] == 3 else x.cos(), (x,))

    assert "ConstraintViolationError" in seen.told
    assert "can't be trusted" not in seen.told
    assert seen.facts.unreliable == ()
