"""Which test modules a session ran as a whole: only there can an entry be known to be stale."""

from __future__ import annotations

import pytest

from pytest_compileguard.collection import stable_nodeid

Whole = dict[str, dict[str, str]]
"""By module, the id of each test within it by the node id that its report will have."""


class Selection:
    """What was collected, and what of it was left out again; its hooks see both."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._items: list[pytest.Item] = []
        self._offered: Whole = {}
        self._broken: set[str] = set()
        self._partial: set[str] = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._broken.add(report.nodeid.partition("::")[0])

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Take up all that is collected: no hook that deselects can run before this one."""
        self._items.append(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """See what is left: a module that lost a test runs in part."""
        for item in self._items:
            module, _, inside = stable_nodeid(item).partition("::")
            self._offered.setdefault(module, {})[item.nodeid] = inside
            if item.nodeid.partition("::")[0] in self._broken:
                self._partial.add(module)
        self._items.clear()
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
