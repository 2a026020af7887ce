"""Which test modules a session ran as a whole: only there can an entry be known to be stale."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pytest_compileguard.collection import stable_nodeid

Whole = dict[str, dict[str, str]]
"""By module, the id of each test within it by the node id that its report will have."""


class Selection:
    """What was collected, and what of it was left out again; its hooks see both."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._offered: Whole = {}
        self._partial: set[str] = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._partial.add(report.nodeid.partition("::")[0])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Take up all that was collected, before anything is deselected."""
        for item in items:
            module, _, inside = stable_nodeid(item).partition("::")
            self._offered.setdefault(module, {})[item.nodeid] = inside
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """See what is left: a module that lost a test runs in part."""
        left = {item.nodeid for item in session.items}
        lost = (m for m, tests in self._offered.items() if not left.issuperset(tests))
        self._partial.update(lost)

    def whole(self) -> Whole:
        """The modules that will run as a whole, if nothing stops the session."""
        if self._is_partial():
            return {}
        return {m: tests for m, tests in self._offered.items() if m not in self._partial}

    def _is_partial(self) -> bool:
        """Whether single tests were asked for: by node id, or since they failed before.

        Of ``--last-failed`` the others are not even collected, so nothing tells of them.
        """
        named = any("::" in str(argument) for argument in self._config.args)
        return named or bool(self._config.getoption("lf", default=False))
