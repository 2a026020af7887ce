"""Wrong backends are caught in every random program to which their fault applies."""

from __future__ import annotations

import dataclasses
import os

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import seed as seeded

from tests.dynamo.mutators import FEATURES, NAMES, RESULTS, backend
from tests.dynamo.random_programs import Program, programs
from tests.dynamo.test_parity_random import SEED, outcome

pytestmark = pytest.mark.usefixtures("compiler_loaded")

DRAWS = int(os.environ.get("COMPILEGUARD_MUTATED_DRAWS", "1"))
"""How many programs each mutator is tried on, of those to which it applies."""

drawn = settings(
    max_examples=DRAWS,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_there_are_enough_mutators() -> None:
    assert len(NAMES) >= 25


@pytest.mark.parametrize("name", [name for name in NAMES if name not in RESULTS])
def test_a_wrong_backend_is_caught_in_every_program(name: str) -> None:
    first, last = FEATURES.get(name, (None, None))

    @seeded(SEED)
    @drawn
    @given(programs(breaks=False, first=first, last=last))
    def caught(program: Program) -> None:
        wrong = backend(name)
        if name == "stale output":
            program = dataclasses.replace(program, sizes=(program.sizes[0],) * 2)
        seen = outcome(program, wrong)
        # What a graph returns to the next one after a break need not be seen.
        assume(wrong.applied and not seen.breaks)
        assert seen.refused is not None

    caught()


@pytest.mark.parametrize("name", RESULTS)
def test_another_result_is_caught_in_every_program(name: str) -> None:
    @seeded(SEED)
    @drawn
    @given(programs(breaks=False))
    def caught(program: Program) -> None:
        wrong = f"if torch.compiler.is_compiling():\n    return {RESULTS[name](program.result)}"
        mutated = dataclasses.replace(program, statements=(*program.statements, wrong))
        assert outcome(mutated).refused is not None

    caught()
