"""Makes one check in this process as the fixture makes it, without a suite around it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import CompileObservation, NotObserved
from pytest_compileguard.options import Options
from pytest_compileguard.report.failure import failure_text
from pytest_compileguard.spec import CompileCheck
from pytest_compileguard.verdict import judge

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pytest_compileguard.finding import Verdict
    from pytest_compileguard.spec import Limits

Before = Callable[[int], object]
Around = Callable[[int], contextlib.AbstractContextManager[object]]


@dataclass(frozen=True)
class Checked:
    """One finished check."""

    verdict: Verdict

    @property
    def facts(self) -> CompileObservation:
        seen = self.verdict.observation.compile
        assert isinstance(seen, CompileObservation), seen
        return seen

    @property
    def sites(self) -> list[str]:
        """Source lines of the graph breaks."""
        return [site.source for site in self.facts.break_sites]

    @property
    def told(self) -> str:
        """What the user reads; empty where nothing fails."""
        return failure_text([self.verdict], rootpath=None)


BY_EAGER = CompileCheck(backend="eager")


def check(
    target: Callable[..., Any],
    *calls: tuple[Any, ...],
    before: Before = lambda _call: None,
    around: Around = lambda _call: contextlib.nullcontext(),
    reference: Callable[..., Any] | None = None,
    spec: CompileCheck = BY_EAGER,
    locates: bool = True,
    **limits: Unpack[Limits],
) -> Checked:
    """Guard a target, make the calls, judge. Compiled by ``eager``, since facts are the same.

    ``before`` runs between the calls, ``around`` is a context manager for each.
    What differs is made again and located, unless not ``locates``.
    """
    options = Options(no_timing=True, no_locate=not locates)
    guard = CompileGuard(nodeid="test_suite.py::test", spec=spec, options=options)
    guarded = guard(target, reference=reference, **limits)
    try:
        for index, arguments in enumerate(calls):
            before(index)
            with around(index):
                guarded(*arguments)
        ((made, observation),) = guard.finish()
    finally:
        guard.close()
    nothing = NotObserved(reason="no baseline here")
    return Checked(judge(made.plan, observation, None, nothing))
