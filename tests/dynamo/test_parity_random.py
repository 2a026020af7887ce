"""Sound code is never refused: random programs under ``aot_eager``."""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded

from pytest_compileguard.dynamo import forget_compiled_code
from pytest_compileguard.log_capture import all_records_hidden
from pytest_compileguard.observation import CompileObservation, ParityObservation
from pytest_compileguard.options import Options
from pytest_compileguard.plan import make_plan
from pytest_compileguard.runner import Check
from pytest_compileguard.spec import CompileCheck
from tests.dynamo.random_programs import Program, programs
from tests.dynamo.torch_alone import deviation

pytestmark = pytest.mark.usefixtures("compiler_loaded")

DRAWS = int(os.environ.get("COMPILEGUARD_DRAWS", "30"))
"""How many programs are drawn; the full test draws 500, from several seeds."""
SEED = int(os.environ.get("COMPILEGUARD_SEED", "0"))

drawn = settings(
    max_examples=DRAWS,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

# A refusal is right where torch alone computes something else, bit for bit. Seen on torch 2.13:
# - eager can't be differentiated (a saved value was written to), so tracing the backward raises;
# - a write to an expanded tensor raises, or changes fewer elements than in eager;
# - `x.conj()` of a real tensor and then `unsqueeze_` and `squeeze_` raise an IndexError;
# - writes to inputs that share memory raise in a call with another size;
# - what a call does before it raises for a shape is done in eager, and not where it is traced;
# - dropout in eval mode gives a copy of its input, where eager gives the input itself;
# - an output that is a view of an input, made after a write to that, shares no memory with it;
# - `v.detach().copy_(v)` loses `requires_grad`;
# - `bernoulli_` of a transposed tensor draws in another order.
# Of slices of one tensor that overlap in one call and not in the next, writes give wrong numbers;
# the programs share memory between inputs in the same way in each call.
TORCH_ALONE: list[str] = []
FEW = 0.1


class Outcome(NamedTuple):
    """How the check of one program ended."""

    refused: str | None
    breaks: int


def outcome(program: Program, backend: Any = "aot_eager") -> Outcome:
    """Check a program."""
    spec, options = CompileCheck(backend=backend), Options(no_timing=True)
    plan = make_plan(spec, options, nodeid="t.py::t", name="program")
    check = Check(plan, program.make())
    calls = program.calls()
    with warnings.catch_warnings(), all_records_hidden():
        warnings.simplefilter("ignore")
        check.start(cold=True)
        for args in calls:
            with program.around(), contextlib.suppress(Exception):
                check.call(args, {})
        seen = check.finish()
    forget_compiled_code()
    parity, facts = seen.parity, seen.compile
    if not isinstance(parity, ParityObservation) or not isinstance(facts, CompileObservation):
        return Outcome(f"{parity}", 0)
    problems = [call.problem for call in check.calls if call.problem]
    wrong = (facts.error, *facts.unreliable, *parity.mismatches, *problems)
    told = "\n".join(str(part) for part in wrong if part)
    return Outcome(told or None, facts.break_events)


@seeded(SEED)
@drawn
@given(programs())
def test_sound_code_is_never_refused(program: Program) -> None:
    refused = outcome(program).refused
    if refused is None:
        return
    alone = deviation(program)
    assert alone is not None, refused
    TORCH_ALONE.append(f"{alone}\n{program!r}")


def test_torch_alone_differs_rarely() -> None:
    assert len(TORCH_ALONE) <= max(3, FEW * DRAWS), "\n\n".join(TORCH_ALONE)


NON_LEAF = "(torch.randn(n, 3, requires_grad=True) * 1)"
# Programs that were refused once.
SOUND = {
    "non-leaf returned without gradients": Program(
        inputs=(NON_LEAF,), statements=("v0 = x0[1:]",), result="(x0, v0)", mode="torch.no_grad()"
    ),
    "non-leaf returned in inference mode": Program(
        inputs=(NON_LEAF,),
        statements=("v0 = x0.sin()",),
        result="(x0, v0)",
        mode="torch.inference_mode()",
    ),
    "arguments that are views of one another, one of them written to": Program(
        inputs=("torch.randn(n, 3)", "x0.view(-1)", "x0.view(-1)[n:]"),
        statements=("v0 = x1 * 2", "x0.add_(1)", "v1 = x1 + v0"),
        result="(v1, x2)",
        sizes=(3, 5),
    ),
    "views of a tensor that is no argument, one of them written to": Program(
        inputs=("torch.randn(n, 4)[1:]", "x0._base[:-1]"),
        statements=("x0.unsqueeze_(0)", "x0.add_(1)", "v1 = x1 * 2"),
        result="v1",
    ),
    "arguments that are views of one leaf, one of them written to": Program(
        inputs=("torch.randn((n, 3)).requires_grad_().t()", "x0[1:]"),
        statements=("v0 = x1.sin()", "x0.add_(1)"),
        result="v0",
        mode="torch.no_grad()",
        sizes=(2, 4),
    ),
    "arguments that are views of what was computed, one of them written to": Program(
        inputs=(f"{NON_LEAF}.unsqueeze(1)", "x0.view(-1)"),
        statements=("v0 = x1 * 2", "x0.add_(1)"),
        result="(x0, v0)",
        sizes=(2, 4),
    ),
    "arguments that are differentiable views, one of them written to": Program(
        inputs=(NON_LEAF, "x0.t()", "x0.flatten()[1:]"),
        statements=("v0 = x1.clone()", "x0[x0 > 0] = 0", "v1 = x2 * 2"),
        result="(v0, x1.sin(), v1)",
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_programs_that_were_refused_once(name: str) -> None:
    assert outcome(SOUND[name]).refused is None
