"""The whole check on a GPU: modes, training, memory, and gates that must fail there too."""

from __future__ import annotations

import pytest

from tests.conftest import RunSuite

pytestmark = pytest.mark.gpu

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

LIBRARY = """
import torch

class Mlp(torch.nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.one = torch.nn.Linear(width, width)
        self.two = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))

def transform(x):
    return torch.relu(x * 2 + 1)

def printing(x):
    y = x * 2
    print("half way")
    return y + 1
"""

INFERENCE = """
import torch
from library import Mlp, transform

def test_mlp(compileguard):
    guarded = compileguard(Mlp().cuda().eval(), mode={mode!r})
    with torch.no_grad():
        for _ in range(4):
            guarded(torch.randn(64, 512, device="cuda"))

def test_transform(compileguard):
    guarded = compileguard(transform, mode={mode!r})
    for _ in range(4):
        guarded(torch.randn(4096, 4096, device="cuda"))
"""

TRAINING = """
import torch
from library import Mlp

def test_training(compileguard):
    model = torch.nn.TransformerEncoderLayer(
        256, 4, 512, dropout={dropout}, batch_first=True, device="cuda", dtype=torch.{dtype}
    )
    guarded = compileguard(model, mode={mode!r}, max_graph_breaks=0, max_recompiles=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        out = guarded(torch.randn(8, 128, 256, device="cuda", dtype=torch.{dtype}))
        out.float().square().mean().backward()
        optimizer.step()
"""

FIRST_USE = """
import pytest, torch

def drawn():
    return torch.rand(3, device="cuda")

@pytest.mark.parametrize("seed", [None, 3])
def test_first(compileguard, seed):
    assert not torch.cuda.is_initialized()
    if seed is not None:
        torch.manual_seed(seed)
    values = compileguard(drawn, backend="aot_eager")()
    print("drawn", values.tolist(), "then", torch.rand(2, device="cuda").tolist())

@pytest.mark.parametrize("seed", [None, 3])
def test_without_the_plugin(seed):
    if seed is not None:
        torch.manual_seed(seed)
    print("drawn", drawn().tolist(), "then", torch.rand(2, device="cuda").tolist())
"""


@pytest.mark.parametrize("mode", MODES)
def test_inference_in_every_mode(run_suite: RunSuite, mode: str) -> None:
    run = run_suite(INFERENCE.format(mode=mode), library=LIBRARY, timing=True)
    run.result.assert_outcomes(passed=2)
    for check in run.checks:
        seen = check["observed"]
        assert (seen["graphs"], seen["recompiles"], seen["fallbacks"]) == (1, 0, 0)
        assert seen["parity"] == "passed"
        assert seen["pairs"] >= 10
        assert 0 < seen["speedup_low"] <= seen["speedup"] <= seen["speedup_high"]
        assert check["samples"]["void"] is None
        assert check["samples"]["clock"] == "cuda_event"
        assert seen["kernels"] > 0


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "float16"))
@pytest.mark.parametrize("mode", ("default", "reduce-overhead"))
def test_training_agrees(run_suite: RunSuite, mode: str, dtype: str) -> None:
    suite = TRAINING.format(mode=mode, dtype=dtype, dropout=0.0)
    run = run_suite(suite, library=LIBRARY, timing=True)
    assert run.check["observed"]["parity"] == "passed", run.text
    run.result.assert_outcomes(passed=1)
    assert run.check["samples"]["void"] is None, run.text


def test_dropout_agrees_and_is_timed_as_users_run_it(run_suite: RunSuite) -> None:
    suite = TRAINING.format(mode="default", dtype="float32", dropout=0.1)
    run = run_suite(suite, library=LIBRARY, timing=True)
    assert run.check["observed"]["parity"] == "passed", run.text
    assert run.check["samples"]["void"] is None


def test_a_large_elementwise_call_is_faster_and_a_promise_too_high_fails(
    run_suite: RunSuite,
) -> None:
    suite = """
        import torch
        from library import transform

        def test_kept(compileguard):
            compileguard(transform, min_speedup=1.5)(torch.randn(8192, 8192, device="cuda"))

        def test_broken(compileguard):
            compileguard(transform, min_speedup=50)(torch.randn(8192, 8192, device="cuda"))
    """
    run = run_suite(suite, library=LIBRARY, timing=True)
    run.result.assert_outcomes(passed=1, failed=1)
    kept = next(check for check in run.checks if "kept" in check["nodeid"])
    assert kept["observed"]["device_speedup"] > 1.5


def test_breaks_and_wrong_numbers_fail(run_suite: RunSuite) -> None:
    suite = """
        import torch
        from library import printing, transform

        def wrong(gm, inputs):
            return lambda *args: tuple(out * 1.001 for out in gm(*args))

        def test_break(compileguard):
            compileguard(printing, max_graph_breaks=0)(torch.randn(64, device="cuda"))

        def test_wrong(compileguard):
            compileguard(transform, backend=wrong)(torch.randn(64, device="cuda"))
    """
    run = run_suite(suite, library=LIBRARY)
    run.result.assert_outcomes(failed=2)
    by_test = {check["nodeid"].split("::")[1]: check["observed"] for check in run.checks}
    assert by_test["test_break"]["graph_breaks"] == 1
    assert by_test["test_wrong"]["parity"] == "failed"


def test_a_twin_costs_no_parameter_memory(run_suite: RunSuite) -> None:
    suite = """
        import torch
        from library import Mlp

        def test_memory(compileguard):
            model = Mlp(16384).cuda().eval()
            held = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            with torch.no_grad():
                compileguard(model)(torch.randn(8, 16384, device="cuda"))
            assert torch.cuda.max_memory_allocated() < 1.1 * held
    """
    run = run_suite(suite, library=LIBRARY)
    run.result.assert_outcomes(passed=1)


def test_the_generators_of_the_gpu_are_left_as_one_eager_call_leaves_them(
    run_suite: RunSuite,
) -> None:
    suite = """
        import torch

        def noisy(x):
            return x + torch.rand_like(x)

        def test_state(compileguard):
            x = torch.zeros(100, device="cuda")
            torch.manual_seed(3)
            expected = noisy(x), torch.rand(3, device="cuda")
            torch.manual_seed(3)
            seen = compileguard(noisy)(x), torch.rand(3, device="cuda")
            assert torch.equal(seen[0], expected[0])
            assert torch.equal(seen[1], expected[1])
    """
    run_suite(suite, library=LIBRARY).result.assert_outcomes(passed=1)


@pytest.mark.parametrize("seed", ("None", "3"))
def test_a_call_that_uses_cuda_first_draws_as_without_the_plugin(
    pytester: pytest.Pytester, seed: str
) -> None:
    pytester.makepyfile(test_suite=FIRST_USE)
    drawn = []
    for name in ("test_first", "test_without_the_plugin"):
        options = ("-s", "--compileguard-no-timing", "-p", "no:cacheprovider")
        result = pytester.runpytest_subprocess(f"test_suite.py::{name}[{seed}]", *options)
        result.assert_outcomes(passed=1)
        drawn += [line.partition("drawn")[2] for line in result.outlines if "drawn" in line]

    assert len(drawn) == 2
    if seed != "None":  # else each process draws other numbers
        assert drawn[0] == drawn[1]
