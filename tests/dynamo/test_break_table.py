"""Graph breaks of small functions, whose numbers were found with several other means.

Each row was compared with ``torch._dynamo.explain``, ``TORCH_LOGS=graph_breaks`` and a
counting backend. One number is not that of torch's events: a break is one site, however
often torch reports it, for a caller, for each branch that leads to it, for a recompile.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import pytest
import torch

from pytest_compileguard.trace.break_text import read_break
from tests.dynamo import break_functions
from tests.dynamo.checked import check
from tests.dynamo.torch_versions import SILENT, TORCH

pytestmark = pytest.mark.usefixtures("compiler_loaded")


class Row(NamedTuple):
    """True numbers of one function."""

    graphs: int
    events: int
    breaks: int
    skips: bool = False
    """Whether Dynamo gives up a frame, which then runs eager."""


TABLE = {
    "clean": Row(1, 0, 0),
    "one_gb": Row(2, 1, 1),
    "two_gb": Row(3, 2, 2),
    "gb_first": Row(1, 1, 1),
    "gb_last": Row(1, 1, 1),
    "gb_consec": Row(2, 2, 2),
    "nested": Row(4, 2, 1),
    "nested_first": Row(3, 2, 1),
    "nested2": Row(6, 3, 1),
    "loop_gb": Row(0, 1, 1, skips=True),
    "loop_in_nested": Row(2, 2, 1, skips=True),
    "call_in_loop": Row(2, 2, 1, skips=True),
    "with_nograd": Row(2, 1, 1),
    "with_custom": Row(0, 1, 1, skips=True),
    "try_gb": Row(0, 1, 1, skips=True),
    "generator": Row(0, 1, 1, skips=True),
    "disabled": Row(2, 1, 1),
    "disabled_nonrec": Row(3, 1, 1),
    "item": Row(2, 1, 1),
    "prnt": Row(2, 1, 1),
    "ddbranch": Row(2, 1, 1),
    "is_comp": Row(1, 0, 0),
    "builtin_unsup": Row(2, 1, 1),
    "id_call": Row(0, 1, 1, skips=True),
    "nontensor": Row(0, 0, 0),
    "skipped_step": Row(0, 1, 1, skips=True),
    # Dynamo meets `backward` twice: in a try that it throws away, and when it resumes.
    "bw_hook": Row(3, 3, 2),
    "nonzero": Row(2, 1, 1),
    "except_raise": Row(1, 0, 0),
    "numpy_call": Row(1, 0, 0),
    "dict_print_twice": Row(2, 2, 2),
}
# As torch 2.11 was seen to do it, on Python 3.12.
if TORCH < (2, 12):
    TABLE |= {"id_call": Row(2, 1, 1), "bw_hook": Row(3, 2, 2)}
TABLE |= dict.fromkeys(SILENT, Row(0, 0, 0))
# Where breaks are what separates graphs, torch's own `explain` counts the same.
EXPLAINED = ("clean", "one_gb", "two_gb", "with_nograd", "disabled", "item", "prnt", "ddbranch")


@pytest.mark.parametrize("name", TABLE)
def test_function_of_the_table(name: str) -> None:
    row = TABLE[name]
    seen = check(getattr(break_functions, name), (torch.ones(4),), max_graph_breaks=0)
    facts = seen.facts

    assert len(facts.break_sites) == row.breaks
    assert facts.break_events == row.events == sum(site.events for site in facts.break_sites)
    assert facts.graphs == row.graphs
    assert any(f.kind == "frame_skipped" for f in facts.fallbacks) == row.skips
    assert not facts.unreliable
    assert not facts.recompiles
    passes = row.breaks == 0 and row.graphs > 0
    assert seen.verdict.outcome == ("passed" if passes else "failed")


@pytest.mark.parametrize("name", EXPLAINED)
def test_explain_counts_the_same(name: str) -> None:
    function = getattr(break_functions, name)
    seen = check(function, (torch.ones(4),)).facts
    explained = torch._dynamo.explain(function)(torch.ones(4))
    torch.compiler.reset()

    assert len(seen.break_sites) == explained.graph_break_count
    assert seen.graphs == explained.graph_count


def test_break_of_an_inner_forward_is_one_site_of_the_outer() -> None:
    seen = check(break_functions.Outer(), (torch.ones(4),))
    (site,) = seen.facts.break_sites

    assert seen.sites == ['print(end="")  # in Inner']
    assert (site.function, site.events) == ("forward", 2)


def test_two_forwards_of_one_file_are_told_apart() -> None:
    seen = check(break_functions.OuterBreaksToo(), (torch.ones(4),))
    events = {site.source: site.events for site in seen.facts.break_sites}

    assert events == {
        'print(end="")  # in Inner': 3,  # Inner itself, and its two callers: forward, its rest
        'print(end="")  # in OuterBreaksToo': 1,
    }


def test_forward_called_by_super_is_one_site() -> None:
    seen = check(break_functions.Derived(), (torch.ones(4),))
    assert seen.sites == ['print(end="")  # in Inner']


def test_recursion_breaks_at_one_site() -> None:
    seen = check(break_functions.recursive, (torch.ones(4), 2))

    assert seen.sites == ['print(end="")  # at every depth']
    # The rest of each depth is one code with another `depth`: compiled again for each of them.
    assert [r.guard for r in seen.facts.recompiles] == ["depth == 2", "depth != 0"]


def test_break_in_a_lambda() -> None:
    seen = check(break_functions.calls_lambda, (torch.ones(4),))
    (site,) = seen.facts.break_sites
    assert site.function == "<lambda>"
    assert site.source.startswith("loud = lambda")


def test_break_in_a_comprehension_gives_up_the_frame() -> None:
    seen = check(break_functions.comprehension, (torch.ones(4),))

    assert seen.sites == ['print(end="")  # in _loud']
    # Since Python 3.12 a comprehension is part of the function around it.
    inlined = sys.version_info >= (3, 12)
    assert [f.kind for f in seen.facts.fallbacks] == ([] if inlined else ["frame_skipped"])


def test_break_below_a_decorator() -> None:
    seen = check(break_functions.decorated, (torch.ones(4),))
    (site,) = seen.facts.break_sites
    assert (site.source, site.function) == ('print(end="")  # below the decorator', "decorated")


def test_break_in_the_decorator_and_below_it() -> None:
    seen = check(break_functions.decorated_loudly, (torch.ones(4),))
    assert seen.sites == [
        'print(end="")  # in the wrapper',
        'print(end="")  # below the loud decorator',
    ]


def test_break_in_a_closure() -> None:
    seen = check(break_functions.closure, (torch.ones(4),))
    assert seen.sites == ['print(end="")  # in the closure']


@pytest.mark.parametrize(("which", "events"), ((0, 1), (1, 2)))
def test_break_in_code_without_source(which: int, events: int) -> None:
    function = break_functions.without_source()[which]
    (site,) = check(function, (torch.ones(4),)).facts.break_sites

    assert (site.file, site.line, site.function) == ("<string>", 3, "made")
    assert site.source == ""
    assert site.events == events + (TORCH < (2, 12))  # it reports the break twice


def test_two_breaks_on_one_line_are_one_place_with_two_events() -> None:
    facts = check(break_functions.two_on_a_line, (torch.ones(4),)).facts

    assert len(facts.break_sites) == 1
    assert facts.break_events == 2


def test_line_that_two_branches_lead_to_is_one_site() -> None:
    seen = check(break_functions.after_a_branch, (torch.ones(4),), (-torch.ones(4),))

    assert seen.sites == ["if y.sum() > 0:", 'print(end="")  # after both branches']
    assert seen.facts.break_events == 3


@pytest.mark.parametrize("order", ((False, True), (True, False)))
def test_break_that_only_one_call_meets_counts(order: tuple[bool, bool]) -> None:
    calls = [(torch.ones(4), loud) for loud in order]
    seen = check(break_functions.breaks_if_asked, *calls, max_graph_breaks=0)

    assert seen.sites == ['print(end="")  # only if asked']
    assert seen.facts.break_sites[0].call == order.index(True)
    # An event is one of a first compile; the place is to be edited all the same.
    assert seen.facts.break_events == seen.facts.break_sites[0].events == (order[0] is True)
    assert seen.verdict.outcome == "failed"


def test_break_that_only_training_meets_counts() -> None:
    module = break_functions.BreaksInTraining().eval()
    seen = check(module, (torch.ones(4),), (torch.ones(4),), before=lambda i: module.train(i == 1))
    assert seen.sites == ['print(end="")  # in training']


@pytest.mark.parametrize("dynamic", (None, False))
def test_recompiles_repeat_no_break(dynamic: bool | None) -> None:  # noqa: FBT001
    calls = [(torch.ones(size),) for size in (4, 5, 6)]
    facts = check(break_functions.two_gb, *calls, dynamic=dynamic).facts

    assert len(facts.break_sites) == facts.break_events == 2
    assert len(facts.recompiles) == (3 if dynamic is None else 6)


def test_reason_that_names_symbols_is_one_site() -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        facts = check(break_functions.splits_by_value_twice, (torch.ones(4),)).facts
    (site,) = facts.break_sites

    assert site.reason in {
        "Could not guard on data-dependent expression",
        "Could not extract specialized integer from data-dependent expression",  # torch 2.11
    }
    assert "(u" in site.hint  # the expression itself, whose symbols differ from frame to frame
    assert site.events == facts.break_events > 1


GIVEN_UP = """\
Graph break: torch.compile cannot properly resume from this graph break, which results in a skip.
torch.compile will skip tracing the frame step (models.py line 3) and fall back to eager.
The graph break occurred in the following user code:
  File "models.py", line 7, in step
    return loop(x)

Traceback (most recent call last):
  File "torch/_dynamo/convert_frame.py", line 1620, in _compile
    unimplemented(
torch._dynamo.exc.Unsupported: Excessive RestartAnalysis() calls
  Explanation: Dynamo attempted to trace the same frame 100+ times.
"""
"""As ``convert_frame.py`` words what it logs itself; no small program makes torch do so."""


def test_frame_given_up_without_a_header_is_read_from_the_traceback() -> None:
    found = read_break(GIVEN_UP, call=0, frame="step")

    assert found is not None
    assert (found.file, found.line, found.function) == ("models.py", 7, "step")
    assert found.reason == "Excessive RestartAnalysis() calls"
    assert found.hint == "Dynamo attempted to trace the same frame 100+ times."
