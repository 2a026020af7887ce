"""The hooks: they delegate, and hold no logic. Nothing imports this module.

torch is not imported when this is loaded, nor by anything at module level below it;
it comes in with the first guarded target.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pytest_compileguard.collection import refusals
from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.finding import Verdict
from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.options import Options, add_options, options_from_config
from pytest_compileguard.phases import finish_test, verdicts_of
from pytest_compileguard.session import Session, to_wire
from pytest_compileguard.spec import MARKER, marker_help, spec_from_marks
from pytest_compileguard.store import Store

# The attribute of a test report that carries verdicts from worker to controller.
WIRE = "compileguard"

OPTIONS = pytest.StashKey[Options]()
STORE = pytest.StashKey[Store]()
GUARD = pytest.StashKey[CompileGuard]()
VERDICTS = pytest.StashKey[list[Verdict]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", marker_help())
    try:
        options = options_from_config(config)
    except CompileGuardError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[OPTIONS] = options
    config.stash[STORE] = Store(config.rootpath, options.baseline_dir)
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist only reports
        config.pluginmanager.register(Reporter(Session(options, config.stash[STORE])))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if problems := refusals(items, config.stash[STORE]):
        raise pytest.UsageError("\n".join(problems))


@pytest.fixture
def compileguard(request: pytest.FixtureRequest) -> Generator[CompileGuard, None, None]:
    """Guard a target: ``guarded = compileguard(target)``, then call ``guarded(...)``."""
    item = request.node
    spec = spec_from_marks(item.iter_markers(MARKER), nodeid=item.nodeid)
    guard = CompileGuard(nodeid=item.nodeid, spec=spec, options=request.config.stash[OPTIONS])
    item.stash[GUARD], item.stash[VERDICTS] = guard, []
    yield guard
    guard.close()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    try:
        result = yield
    except CompileGuardError as error:
        pytest.fail(str(error), pytrace=False)
    if guard := pyfuncitem.stash.get(GUARD, None):
        store, verdicts = pyfuncitem.config.stash[STORE], pyfuncitem.stash[VERDICTS]
        marked = pyfuncitem.get_closest_marker(MARKER) is not None
        if problem := finish_test(guard, store, verdicts, marked=marked):
            pytest.fail(problem, pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    guard = item.stash.get(GUARD, None)
    if guard and call.when == "call":
        setattr(report, WIRE, [to_wire(v) for v in verdicts_of(guard, item.stash[VERDICTS])])
    return report


class Reporter:
    """The hooks that gather and write: in the controller, or in the only process."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._session.put(report.nodeid, report.outcome, getattr(report, WIRE, None))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        complete = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if self._session.write(complete=complete):
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        width, verbosity = terminalreporter._tw.fullwidth, terminalreporter.verbosity
        for line in self._session.lines(width=width, verbosity=verbosity):
            terminalreporter.write_line(line.text, **line.markup)
