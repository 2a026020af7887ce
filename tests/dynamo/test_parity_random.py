"""Sound code is never refused: random programs under ``aot_eager``."""

from __future__ import annotations

import contextlib
import os
import warnings

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

DRAWS = int(os.environ.get("COMPILEGUARD_DRAWS", "40"))
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
# - dropout in eval mode gives a copy of its input, where eager gives the input itself;
# - an output that is a view of an input, made after a write to that, shares no memory with it;
# - `v.detach().copy_(v)` loses `requires_grad`;
# - `bernoulli_` of a transposed tensor draws in another order.
# Of slices of one tensor that overlap in one call and not in the next, writes give wrong numbers;
# the programs share memory between inputs in the same way in each call.
TORCH_ALONE: list[str] = []
FEW = 0.06


def refusal(program: Program) -> str | None:
    """Why a check of the program does not pass."""
    plan = make_plan(
        CompileCheck(backend="aot_eager"), Options(no_timing=True), nodeid="t.py::t", name="program"
    )
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
        return f"{parity}"
    if facts.error or facts.unreliable or parity.mismatches:
        return f"{facts.error} {facts.unreliable} {parity.mismatches}"
    problems = [call.problem for call in check.calls]
    return None if parity.calls_compared == len(calls) else f"{problems}"


@seeded(SEED)
@drawn
@given(programs())
def test_sound_code_is_never_refused(program: Program) -> None:
    refused = refusal(program)
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
}


@pytest.mark.parametrize("name", SOUND)
def test_programs_that_were_refused_once(name: str) -> None:
    assert refusal(SOUND[name]) is None
