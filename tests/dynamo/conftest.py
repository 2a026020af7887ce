"""Fixtures of several of these modules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dynamo import named_settings
from tests.dynamo.planted import WRONG


@pytest.fixture(params=(False, True), ids=("sound", "wrong"))
def wrong(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether targets that ask ``planted`` compute something else once they are compiled."""
    WRONG[:] = [None] * request.param
    yield request.param
    WRONG.clear()


@pytest.fixture
def settings_as_new() -> Iterator[None]:
    """Let ``named_settings`` have its own names again at the end."""
    before = dict(vars(named_settings))
    yield
    vars(named_settings).clear()
    vars(named_settings).update(before)
