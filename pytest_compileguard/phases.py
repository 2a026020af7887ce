"""What happens to the checks of one test once its body is through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytest_compileguard.baseline.look_up import Baseline, look_up
from pytest_compileguard.baseline.store import Store
from pytest_compileguard.environment import Environment, make_environment
from pytest_compileguard.errors import BaselineError
from pytest_compileguard.finding import Finding, Verdict
from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.observation import NotObserved, Observation
from pytest_compileguard.plan import Plan
from pytest_compileguard.report.failure import failure_text
from pytest_compileguard.spec import MARKER, WATCHED_LIMITS
from pytest_compileguard.verdict import judge


def finish_test(
    guard: CompileGuard,
    store: Store,
    verdicts: list[Verdict],
    *,
    marked: bool,
    own_limits: Sequence[str] = (),
) -> str | None:
    """Finish all checks of a test; say why it fails, if it does.

    Args:
        guard: That of the test.
        store: Where baselines are.
        verdicts: Takes the verdicts up, also where one of the later checks breaks off.
        marked: Whether the test, or what it stands in, is marked.
        own_limits: What the marks on the test itself ask for.
    """
    if guard.disabled:
        return None
    problems = []
    for check, observation in guard.finish():
        environment = make_environment(check.device)
        try:
            baseline = _baseline(check.plan, store, environment)
        except BaselineError as error:
            problems.append(str(error))
            continue
        verdict = judge(check.plan, observation, environment, baseline)
        if verdict.fails or check.plan.artifacts_for == "all":
            verdict = msgspec.structs.replace(verdict, artifacts=check.save())
        verdicts.append(verdict)
    if not guard.plans:
        return _guards_nothing(guard, marked=marked)
    if any(verdict.fails for verdict in verdicts):
        problems.insert(0, failure_text(verdicts, rootpath=store.rootpath))
    problems.extend(_only_watched(guard, own_limits))
    return "\n".join(problems) or None


def _only_watched(guard: CompileGuard, own_limits: Sequence[str]) -> Iterator[str]:
    """Let no limit of the test's own mark pass since none of its checks could look at it."""
    odd = [name for name in own_limits if name not in WATCHED_LIMITS]
    if odd and all(plan.watched for plan in guard.plans):
        yield (
            f"{guard.plans[0].nodeid}: {MARKER}: {', '.join(odd)} can't be checked by watching, "
            "and the test guards no target: call compileguard(target) too, or leave them out"
        )


def _guards_nothing(guard: CompileGuard, *, marked: bool) -> str | None:
    """Say why a test fails that checks nothing; one that promises nothing only if strict."""
    if marked:
        return f"the test is marked {MARKER}, but it guards no target: call compileguard(target)"
    if guard.options.strict:
        return (
            "the test takes compileguard, but it guards no target: call compileguard(target), or "
            f"don't take it ({guard.options.origin('strict')})"
        )
    return None  # told at the end of the run


def verdicts_of(guard: CompileGuard, judged: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts of a test; checks that it never got to are told as not checked."""
    done = {verdict.key for verdict in judged}
    reason = "the test itself failed, or was skipped, before this check was judged"
    if guard.disabled:
        reason = f"checks are disabled ({guard.options.origin('disable')})"
    missing = [plan for plan in guard.plans if plan.key not in done]
    return [*judged, *(_unjudged(plan, reason) for plan in missing)]


def _baseline(plan: Plan, store: Store, environment: Environment) -> Baseline | NotObserved:
    if plan.update_baseline == "all":
        return NotObserved(reason="baselines are being recorded")
    return look_up(store, nodeid=plan.nodeid, name=plan.name, environment=environment)


def _unjudged(plan: Plan, reason: str) -> Verdict:
    nothing = NotObserved(reason=reason)
    return Verdict(
        nodeid=plan.nodeid,
        name=plan.name,
        backend=plan.arguments.backend_name,
        mode=plan.arguments.mode,
        outcome="not_checked",
        strict=False,  # the test does not fail by a check that was not made
        findings=(Finding(metric="compiled", status="not_checked", message=reason),),
        observation=Observation(compile=nothing, parity=nothing, speed=nothing),
        speed=None,
        device_speed=None,
        environment=None,
        recordable=False,
    )
