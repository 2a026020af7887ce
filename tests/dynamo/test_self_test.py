"""A torch whose trace says something else than expected is refused before any check is made."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

import pytest
import torch
from torch._dynamo.callback import CompilationCallbackHandler

from pytest_compileguard.dynamo import self_test, windows
from tests.dynamo import break_functions
from tests.dynamo.checked import check

pytestmark = pytest.mark.usefixtures("compiler_loaded")

Change = Callable[[logging.LogRecord], bool]


def dropped(name: str) -> Change:
    """Events of this kind are not there: renamed, or no longer logged."""

    def keep(record: logging.LogRecord) -> bool:
        metadata = getattr(record, "metadata", None) or {}
        return name not in metadata and metadata.get("artifact", {}).get("name") != name

    return keep


def reworded(old: str, new: str) -> Change:
    def change(record: logging.LogRecord) -> bool:
        payload = getattr(record, "payload", None)
        if isinstance(payload, str):
            record.payload = payload.replace(old, new)
        return True

    return change


def failing(record: logging.LogRecord) -> bool:
    raise LookupError(record.name)


CHANGES = {
    "an error": failing,
    "no graphs": dropped("dynamo_output_graph"),
    "no metrics": dropped("compilation_metrics"),
    "no breaks": dropped("dynamo_graph_break_reason"),
    "no recompiles": dropped("recompile_reasons"),
    "breaks in another form": reworded("\n", " "),
    "another form of guards": reworded("size mismatch at index 0. expected", "changed its size"),
}


@pytest.fixture
def _tried_out_anew() -> Iterator[None]:
    self_test._try_out.cache_clear()
    yield
    self_test._try_out.cache_clear()


@contextlib.contextmanager
def another_torch(change: Change) -> Iterator[None]:
    trace = logging.getLogger("torch.__trace")
    trace.addFilter(change)
    try:
        yield
    finally:
        trace.removeFilter(change)


@pytest.mark.usefixtures("_tried_out_anew")
@pytest.mark.parametrize("name", CHANGES)
def test_changed_trace_is_refused(name: str) -> None:
    with another_torch(CHANGES[name]):
        seen = check(break_functions.clean, (torch.ones(4),))

    assert seen.verdict.outcome == "failed"
    assert f"the compile trace of torch {torch.__version__} is not understood" in seen.told


@pytest.mark.usefixtures("_tried_out_anew")
def test_a_torch_that_does_not_say_when_it_compiles_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unheard = CompilationCallbackHandler()  # as if torch told others
    monkeypatch.setattr(windows, "callback_handler", unheard)
    told = check(break_functions.clean, (torch.ones(4),)).told
    assert "it says times of compiling: [], not ['begins', 'ends', " in told


@pytest.mark.usefixtures("_tried_out_anew")
def test_this_torch_is_understood_whatever_a_project_configures() -> None:
    with torch._dynamo.config.patch(
        recompile_limit=1, error_on_recompile=True, automatic_dynamic_shapes=False
    ):
        assert self_test._deviations() == []
