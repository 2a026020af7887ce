"""The hooks: they delegate, and hold no logic. Nothing imports this module.

torch is not imported when this is loaded, nor by anything at module level below it;
it comes in with the first guarded target.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from pytest_compileguard.baseline.store import Store
from pytest_compileguard.collection import (
    FIXTURE,
    modes_of,
    own_limits,
    refusals,
    spec_of,
    stable_nodeid,
)
from pytest_compileguard.contradictions import refuse_contradictions
from pytest_compileguard.errors import CompileGuardError, OptionError
from pytest_compileguard.failing import fail
from pytest_compileguard.finding import Verdict
from pytest_compileguard.gpu_pinning import pin
from pytest_compileguard.guard import CompileGuard
from pytest_compileguard.log_capture import trace_hidden
from pytest_compileguard.options import Options, add_options, options_from_config, pins_gpus
from pytest_compileguard.outputs import ANNOTATING_PLUGIN, Outputs, github
from pytest_compileguard.phases import finish_test, verdicts_of
from pytest_compileguard.progress import Progress
from pytest_compileguard.report.page import missing
from pytest_compileguard.report.plain_text import plain
from pytest_compileguard.report.properties import properties, without_ours
from pytest_compileguard.screen import open_progress
from pytest_compileguard.selection import Selection
from pytest_compileguard.session import Session, encodable, make_store, to_wire
from pytest_compileguard.spec import MARKER, marker_help

# What carries verdicts (on a test report) and refusals (on the output of a worker) to the
# controller of pytest-xdist.
WIRE = "compileguard"
WHOLE = "compileguard_whole"

OPTIONS = pytest.StashKey[Options]()
STORE = pytest.StashKey[Store]()
PROGRESS = pytest.StashKey[Progress]()
GUARD = pytest.StashKey[CompileGuard]()
VERDICTS = pytest.StashKey[list[Verdict]]()
SELECTION = pytest.StashKey[Selection]()
UNPINNED = pytest.StashKey[tuple[str, ...]]()
"""Why this worker could not be given a GPU of its own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


# Before conftests, which may use CUDA. A problem is told once there is a way to.
@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if pins_gpus(early_config):
        with suppress(CompileGuardError):
            pin(os.environ)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", marker_help())
    try:
        options = options_from_config(config)
        refuse_contradictions(options)
        config.stash[STORE] = make_store(options)
    except CompileGuardError as error:
        raise pytest.UsageError(str(error)) from None
    if options.html is not None and (problem := missing()):
        raise pytest.UsageError(f"--compileguard-html: {problem}")
    if options.gpus == "auto":
        try:
            pin(os.environ)  # again, for those who load this plugin from a conftest
        except CompileGuardError as error:
            config.stash[UNPINNED] = (str(error),)
    config.stash[OPTIONS] = options
    config.stash[PROGRESS] = open_progress(config)
    config.stash[SELECTION] = selection = Selection(config)
    config.pluginmanager.register(selection)
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist only reports
        results = Session(options, config.stash[STORE], Outputs(options, github(os.environ)))
        config.pluginmanager.register(Reporter(results))
        config.pluginmanager.register(Benchmarks(results))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[WHOLE] = encodable(session.config.stash[SELECTION].whole())


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if modes := modes_of(metafunc):
        metafunc.parametrize(FIXTURE, modes, ids=modes, indirect=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    store = None if config.stash[OPTIONS].disable else config.stash[STORE]
    problems = [*config.stash.get(UNPINNED, ()), *refusals(items, store)]
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if problems and output is None:
        raise pytest.UsageError(*map(plain, problems))
    if problems and output is not None:
        # An error would crash the worker: it runs nothing, and the controller tells why.
        output[WIRE] = [plain(problem) for problem in problems]
        items.clear()


@pytest.fixture
def compileguard(request: pytest.FixtureRequest) -> Generator[CompileGuard, None, None]:
    """Guard a target of the test: pass it in, and call what comes back in its place."""
    item = request.node
    options = request.config.stash[OPTIONS]
    guard = CompileGuard(
        nodeid=stable_nodeid(item),
        spec=spec_of(item),
        options=options,
        progress=request.config.stash[PROGRESS],
        mode=getattr(request, "param", None),
    )
    item.stash[GUARD], item.stash[VERDICTS] = guard, []
    with trace_hidden():
        yield guard
    guard.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _told_in_one_line(item.session):
        return (yield)


# Last, so that it runs within the capturing of output. Not `pytest_pyfunc_call`, which is not
# called for methods of `unittest.TestCase`: their checks would never be judged.
@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _told_in_one_line(item.session):
        result = yield
    if guard := item.stash.get(GUARD, None):
        store, verdicts = item.config.stash[STORE], item.stash[VERDICTS]
        marked = item.get_closest_marker(MARKER) is not None
        own = own_limits(item)
        if problem := finish_test(guard, store, verdicts, marked=marked, own_limits=own):
            fail(item, problem)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with _told_in_one_line(item.session):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    guard = item.stash.get(GUARD, None)
    if guard and call.when == "call":
        judged = item.stash[VERDICTS]
        verdicts = verdicts_of(guard, judged)
        setattr(report, WIRE, [to_wire(verdict) for verdict in verdicts])
        # In place: this list is the one that the report of the teardown will hold too.
        item.user_properties[:] = [*without_ours(item.user_properties), *properties(verdicts)]
        report.user_properties = list(item.user_properties)
    return report


@contextmanager
def _told_in_one_line(session: pytest.Session) -> Iterator[None]:
    """Show what a user did wrong without the frames that found it.

    An option that can't be kept ends the run: it would fail each test.
    """
    try:
        yield
    except OptionError as error:
        session.shouldfail = plain(str(error))
        raise pytest.fail.Exception(plain(str(error)), pytrace=False) from None
    except CompileGuardError as error:
        raise pytest.fail.Exception(plain(str(error)), pytrace=False) from None


class Reporter:
    """The hooks that gather and write: in the controller, or in the only process."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._interrupted = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        wire = getattr(report, WIRE, None)
        self._session.put(
            report.nodeid,
            report.outcome,
            wire,
            line=report.location[1],
            expected=report.skipped and hasattr(report, "wasxfail"),
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Hear from a worker of pytest-xdist that ends; one that crashed has no output."""
        output = getattr(node, "workeroutput", {})
        self._session.refuse(output.get(WIRE, ()))
        if WHOLE in output:
            self._session.collected(output[WHOLE])

    def pytest_keyboard_interrupt(self) -> None:
        self._interrupted = True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if whole := session.config.stash[SELECTION].whole():
            self._session.collected(whole)
        through = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        wrong = self._session.write(complete=through and not self._interrupted)
        if wrong and (through or exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        width = terminalreporter._tw.fullwidth  # noqa: SLF001  # pytest has no public one
        if lines := self._session.lines(width=width, verbosity=terminalreporter.verbosity):
            terminalreporter.section("compileguard")
        for line in lines:
            terminalreporter.write_line(line.text, **line.markup)
        at_tests = not terminalreporter.config.pluginmanager.hasplugin(ANNOTATING_PLUGIN)
        for command in self._session.commands(at_tests=at_tests):
            terminalreporter.write_line(command)


class Benchmarks:
    """Hands samples to pytest-benchmark, ahead of the hook in which that writes its files."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        self._session.enter_benchmarks(getattr(session.config, "_benchmarksession", None))
        return (yield)
