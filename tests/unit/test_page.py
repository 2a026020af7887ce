"""The report as a page, in a real browser: what it shows, how it is used, and what never runs."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_compileguard.finding import Verdict
from pytest_compileguard.observation import Fallback, Mismatch, NotObserved, SpeedObservation
from pytest_compileguard.report.contract import CheckReport, Report, read_report
from pytest_compileguard.report.document import document
from pytest_compileguard.report.markdown import markdown
from pytest_compileguard.report.page import page
from pytest_compileguard.report.plots import plots
from pytest_compileguard.report.story import story
from tests.browser import Page, opened
from tests.unit import test_report as made

HOSTILE = (
    "<script>window.hit=1</script><img src=x onerror=window.hit=1>\"'`</pre></style>"
    "{{ 7 * 7 }}{% raw %}]]><svg/onload=window.hit=1>\x00\x1b[31m\u202e\u2028&lt;"
)


def report_of(*verdicts: Verdict) -> Report:
    return read_report(document(verdicts, rootpath=made.ROOT))


def check_of(verdict: Verdict) -> CheckReport:
    return report_of(verdict).checks[0]


def noisy(low: float = 1.3, high: float = 1.5) -> SpeedObservation:
    """Samples as a real machine gives them: a hump and a tail on both sides."""
    waves = [(1 + math.sin(at * 12.9898) * 0.04 + (at % 17 == 0) * 0.15) for at in range(300)]
    compiled = tuple(0.000298 * wave for wave in waves)
    factors = [low + (high - low) * (at * 7 % 300) / 300 for at in range(300)]
    eager = tuple(base * factor for base, factor in zip(compiled, factors, strict=True))
    return msgspec.structs.replace(
        made.speed_of(low, high, 1.8), eager_s=eager, compiled_s=compiled
    )


def session() -> list[Verdict]:
    mismatch = Mismatch(call=2, path="output['mean']", kind="value", message="difference 0.5")
    names = ("triton_poi_fused_add_mul_0",)
    steps: dict[str, Any] = {"graphs_per_call": (1, 1, 0), "kernel_names": names}
    broken = made.compilation_with(made.SITE, recompiles=(made.RECOMPILE,), **steps)
    return [
        made.verdict_of("t.py::test_breaks", compilation=broken, speed=noisy()),
        made.verdict_of(
            "t.py::test_differs",
            parity=msgspec.structs.replace(made.PARITY, mismatches=(mismatch,)),
        ),
        made.verdict_of("t.py::test_fast", speed=noisy(), baseline=made.STORED),
        *made.session()[1:],
    ]


def many(count: int) -> list[Verdict]:
    base = session()
    kinds = [base[at % len(base)] for at in range(count)]
    names = [f"tests/test_shop.py::test_{at}" for at in range(count)]
    return [
        msgspec.structs.replace(verdict, nodeid=name)
        for verdict, name in zip(kinds, names, strict=True)
    ]


def hostile_report() -> Report:
    site = msgspec.structs.replace(
        made.SITE, file=HOSTILE, function=HOSTILE, source=HOSTILE, reason=HOSTILE, hint=HOSTILE
    )
    recompile = msgspec.structs.replace(
        made.RECOMPILE, frame=HOSTILE, guard=HOSTILE, subject=HOSTILE, before=HOSTILE
    )
    fallback = Fallback(
        kind="ran_eager", call=1, frame=HOSTILE, file=HOSTILE, line=1, reason=HOSTILE
    )
    compilation = made.compilation_with(
        site,
        recompiles=(recompile,),
        fallbacks=(fallback,),
        kernel_names=(HOSTILE, f"triton_poi_fused_{HOSTILE}_0"),
        graphs_per_call=(1,),
        unreliable=(HOSTILE,),
        error=HOSTILE,
    )
    mismatch = Mismatch(call=0, path=HOSTILE, kind="value", message=HOSTILE)
    replace = msgspec.structs.replace
    return report_of(
        made.verdict_of(
            f"tests/a.py::test_a[{HOSTILE}]",
            name=HOSTILE,
            compilation=compilation,
            parity=replace(made.PARITY, mismatches=(mismatch,), unchecked=(HOSTILE,)),
            speed=replace(made.speed_of(1.1, 1.2), notes=(HOSTILE,), device=HOSTILE),
            environment=replace(made.GPU, device_name=HOSTILE, driver=HOSTILE),
        )
    )


# --- without a browser -----------------------------------------------------------------------


def test_the_story_tells_each_call() -> None:
    site, recompile = made.SITE, made.RECOMPILE
    told = story(
        check_of(
            made.verdict_of(
                compilation=made.compilation_with(
                    site, recompiles=(recompile,), calls=6, graphs_per_call=(2, 1, 0, 0, 0, 0)
                ),
                parity=msgspec.structs.replace(
                    made.PARITY,
                    calls=6,
                    mismatches=(Mismatch(call=4, path="output", kind="value", message="0.5"),),
                ),
            )
        )
    )
    assert [(c.title, [e.kind for e in c.events]) for c in told] == [
        ("call 1", ["compiled", "broke"]),
        ("call 2", ["compiled", "recompiled"]),
        ("calls 3 to 4", ["reused"]),
        ("call 5", ["reused", "differed"]),
        ("call 6", ["reused"]),
    ]
    assert told[0].events[1].place == "models/mlp.py:41 in forward"
    assert told[1].events[1].text == "0/1 forward: x.size(0) 32 -> 48, then dynamic"


def test_a_story_of_eager_calls_never_says_reused() -> None:
    fallback = Fallback(
        kind="ran_eager", call=0, frame="", file="", line=0, reason="3 of 3 calls: 1, 2, 3"
    )
    compilation = made.compilation_with(fallbacks=(fallback,), graphs_per_call=(1, 0, 0))
    told = story(check_of(made.verdict_of(compilation=compilation)))
    kinds = [event.kind for chapter in told for event in chapter.events]
    assert kinds == ["compiled", "eager", "unchanged"]


def test_nothing_observed_has_no_story_and_no_plot() -> None:
    nothing = NotObserved(reason="it was never called")
    check = check_of(made.verdict_of(compilation=nothing, parity=nothing, speed=nothing))
    assert story(check) == ()
    assert plots(check) == ()


@pytest.mark.parametrize(
    "samples",
    (
        {"eager_s": (math.nan, 0.0), "compiled_s": (1.0, 1.0)},
        {"eager_s": (), "compiled_s": ()},
        {"eager_s": (1.0,), "compiled_s": (1.0,)},
        {"void": "a tracer"},
    ),
)
def test_samples_that_say_nothing_are_not_drawn(samples: dict[str, Any]) -> None:
    speed = msgspec.structs.replace(made.speed_of(1.3, 1.32), **samples)
    assert plots(check_of(made.verdict_of(speed=speed, min_speedup=None))) == ()


def test_equal_samples_are_drawn() -> None:
    speed = msgspec.structs.replace(
        made.speed_of(1.3, 1.32), eager_s=(1e-3,) * 9, compiled_s=(1e-3,) * 9
    )
    for plot in plots(check_of(made.verdict_of(speed=speed))):
        assert len(plot.ticks) >= 2
        assert all(re.fullmatch(r"[MVHZ\d. ]+", path) for _, path in plot.areas)


def test_plots_mark_what_the_speedup_is_held_to() -> None:
    drawn = plots(check_of(made.verdict_of(speed=noisy(), baseline=made.STORED)))
    titles = [plot.title.rpartition(", ")[2] for plot in drawn]
    assert titles == ["wall clock", "wall clock", "device clock", "device clock"]
    marks = {mark.kind: mark for mark in drawn[1].marks}
    assert set(marks) == {"even", "limit", "baseline", "speedup"}
    assert marks["limit"].label == "limit 1.20x"
    assert marks["even"].x < marks["limit"].x < marks["speedup"].x < marks["baseline"].x
    assert drawn[1].band is not None


def test_a_loss_against_the_baseline_shows_its_counts() -> None:
    verdict = made.verdict_of(
        compilation=made.compilation_with(made.SITE), max_graph_breaks=None, baseline=made.STORED
    )
    report = report_of(verdict)
    counts = "1, baseline 0: recorded with torch"
    assert f"<b>baseline graph breaks</b> {counts}" in page(report)
    assert f"baseline graph breaks {counts}" in markdown(report)


def test_a_report_of_nothing_is_a_page() -> None:
    assert "no checks" in page(report_of())


def test_without_jinja2_the_option_is_refused_at_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(sitecustomize="import sys\nsys.modules['jinja2'] = None\n")
    pytester.makepyfile(test_a="def test_a(): pass\n")
    pytester.syspathinsert()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--compileguard-html=r.html"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(pytester.path), "PATH": ""},
        check=False,
    )
    assert done.returncode == 4
    said = "--compileguard-html: needs jinja2: pip install 'pytest-compileguard[html]'"
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_hundred_checks_fit_in_two_megabytes() -> None:
    assert len(page(report_of(*many(100))).encode()) < 2_000_000


# --- in a browser ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def tab(browser: Page, tmp_path: Path) -> Page:
    browser.show()
    file = tmp_path / "report.html"
    file.write_text(page(report_of(*session())), encoding="utf-8")
    browser.load(file)
    return browser


def visible(tab: Page, selector: str) -> int:
    found = tab.js(f"[...document.querySelectorAll({selector!r})].filter(e => !e.hidden).length")
    assert isinstance(found, int)
    return found


def test_it_opens_offline_without_complaint(tab: Page) -> None:
    assert tab.complaints() == []
    assert [url for url in tab.requested() if not url.startswith("file://")] == []
    assert len(tab.requested()) == 1
    assert tab.js("document.title") == "compileguard: 3 of 6 checks failed"
    assert visible(tab, "tbody tr[data-verdict]") == 6
    assert visible(tab, "details.check[open]") == 3
    text = tab.js("document.getElementById('c1').innerText")
    for shown in ("print(x.shape)", "models/mlp.py:41 in forward", "x.size(0) 32 -> 48"):
        assert shown in text
    assert tab.js("document.querySelectorAll('figure svg').length") >= 4


def test_filters_work_by_words_and_verdict(tab: Page) -> None:
    type_into = "(s => {s.value = %r; s.dispatchEvent(new Event('input'))})(%s)"
    tab.js(type_into % ("differs", "document.getElementById('search')"))
    assert visible(tab, "tbody tr[data-verdict]") == visible(tab, "details.check") == 1
    assert tab.js("document.getElementById('told').textContent") == "1 of 6 checks shown"
    tab.js(type_into % ("", "document.getElementById('search')"))
    tab.js("document.querySelector('input[value=failed]').click()")
    assert visible(tab, "tbody tr[data-verdict]") == visible(tab, "details.check") == 3


def test_a_keyboard_is_enough(tab: Page) -> None:
    tab.press("Tab", 9)
    assert tab.js("document.activeElement.className") == "skip"
    tab.js("document.querySelector('details.check:not([open]) summary').focus()")
    name = "document.activeElement.parentElement"
    assert tab.js(f"{name}.open") is False
    tab.press("Enter", 13, "\r")
    assert tab.js(f"{name}.open") is True
    assert tab.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    link = tab.js("document.querySelector('td a').hash")
    tab.js("document.getElementById('close-all').click()")
    assert visible(tab, "details.check[open]") == 0
    tab.js(f"location.hash = {link!r}")
    tab.js("new Promise(done => setTimeout(done))")
    assert tab.js(f"document.querySelector({link!r}).open") is True


def test_names_for_those_who_listen(tab: Page) -> None:
    tree = tab.command("Accessibility.getFullAXTree")["nodes"]
    nodes = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in tree if "role" in n]
    unnamed = [
        role
        for role, name in nodes
        if role in ("button", "checkbox", "searchbox", "image", "link", "region") and not name
    ]
    assert unnamed == []
    assert any(role == "image" and "limit 1.20x" in name for role, name in nodes)
    headings = [node for node in nodes if node[0] == "heading"]
    assert headings[0][1] == "compileguard"


CONTRAST = """
(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => {
    const [r, g, b] = c.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92
      : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = (e) => {
    for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
  };
  for (const d of document.querySelectorAll("details")) d.open = true;
  const bad = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || ["SCRIPT", "STYLE"].includes(e.tagName)) continue;
    const style = getComputedStyle(e);
    const ink = numbers(e.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(paper(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.add(`${e.tagName}.${e.getAttribute("class")} ${ratio.toFixed(2)}`);
  }
  return [...bad];
})()
"""


@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_contrast_is_enough_for_everybody(tab: Page, scheme: str) -> None:
    tab.show(scheme=scheme)
    assert tab.js(CONTRAST) == []


@pytest.mark.parametrize("width", (320, 480, 1600))
def test_no_width_makes_the_page_scroll_sideways(tab: Page, width: int) -> None:
    tab.show(width=width)
    assert tab.js("document.documentElement.scrollWidth") <= width


def test_hostile_text_shows_and_never_runs(browser: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(hostile_report()), encoding="utf-8")
    browser.load(file)

    browser.js("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.js("window.hit") is None
    assert browser.complaints() == []
    assert browser.js("document.scripts.length") == 1
    assert browser.js("document.images.length") == 0
    acting = "[onload], [onerror], iframe, object"
    assert browser.js(f"document.querySelectorAll('{acting}').length") == 0
    text = browser.js("document.body.innerText")
    assert "<script>window.hit=1</script>" in text
    assert "{{ 7 * 7 }}" in text
    assert not set("\x00\x1b\u202e") & set(text)


def test_a_script_that_got_in_would_be_refused(browser: Page, tmp_path: Path) -> None:
    """The second wall: the policy lets no other script run, nor anything be fetched."""
    text = page(report_of(*session()))
    attack = "<script>window.hit=1</script><img src='https://example.invalid/x' onerror='hit=2'>"
    file = tmp_path / "report.html"
    file.write_text(text.replace("</main>", f"{attack}</main>"), encoding="utf-8")
    browser.load(file)

    assert browser.js("window.hit") is None
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


def test_hundreds_of_checks_open_folded(browser: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(report_of(*many(300))), encoding="utf-8")
    browser.load(file)
    assert visible(browser, "tbody tr[data-verdict]") == 300
    assert visible(browser, "details.check[open]") == 0
