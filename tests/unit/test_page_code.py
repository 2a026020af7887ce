"""Code, graphs and kernels on the page: what is shown, linked and read, and what never is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pytest_compileguard.finding import Artifacts, SavedText
from pytest_compileguard.observation import FusedKernel, LaunchedKernel, LaunchObservation
from pytest_compileguard.report.contract import Report
from pytest_compileguard.report.kernels import kernels
from pytest_compileguard.report.markdown import markdown
from pytest_compileguard.report.page import page
from pytest_compileguard.report.saved_files import SavedFiles
from tests.browser import Page, opened
from tests.unit import test_report as made
from tests.unit.test_fused_kernels import TRITON
from tests.unit.test_page import CONTRAST, HOSTILE, check_of, report_of

GRAPH = (
    "class GraphModule(torch.nn.Module):\n    def forward(self, x):\n        return (x.sin(),)\n"
)
CPP = """k = async_compile.cpp_pybinding(['float*'], r'''
#include <x>
extern "C" void k() {}
''')
"""
EVIL = f"# {HOSTILE}\n'''</pre></details><script>window.hit=1</script>\n::error::x\n"
TEXTS = {
    "graph_0_0.txt": GRAPH,
    "guards_0_0.txt": "TREE_GUARD_MANAGER:\n| +- TENSOR_MATCH",
    "code_0_0_forward.py": TRITON,
    "code_0_0_backward.py": CPP,
    "code_0_1.py": EVIL,
}


def report_with(folder: Path, texts: dict[str, str], **changes: object) -> Report:
    """A report of one check whose files lie in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trace.log").write_text("V1122", encoding="utf-8")
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    saved = Artifacts(
        folder=str(folder),
        trace=str(folder / "trace.log"),
        texts=tuple(
            SavedText(
                kind=name.partition("_")[0],  # type: ignore[arg-type]  # as saving names them
                compile_id=HOSTILE if name == "code_0_1.py" else "0/0",
                call=0,
                file=str(folder / name),
            )
            for name in texts
        ),
        problems=(HOSTILE,),
    )
    fused = (FusedKernel(name="extern_kernels.mm", ops=("aten.mm", HOSTILE), nodes=(HOSTILE,)),)
    verdict = made.verdict_of(
        f"t.py::test_a[{HOSTILE}]", compilation=made.compilation_with(fused=fused)
    )
    launches = LaunchObservation(
        eager_kernels=2,
        compiled_kernels=1,
        eager_launched=(LaunchedKernel(name=f"void sin<4, {HOSTILE}>", launches=2),),
        compiled_launched=(LaunchedKernel(name="triton_poi_fused_sin_0", launches=1),),
    )
    seen = msgspec.structs.replace(verdict.observation, launches=launches)
    saved = msgspec.structs.replace(saved, **changes)
    return report_of(msgspec.structs.replace(verdict, observation=seen, artifacts=saved))


def files_of(root: Path) -> SavedFiles:
    return SavedFiles(base=root / "pages", rootpath=root, below=root / "saved")


def test_kernels_are_made_of_what_inductor_says() -> None:
    compilation = made.compilation_with(
        kernel_names=("triton_per_fused_mean_mul_sin_0", "cpp_fused_add_relu_1", "triton_mm_2"),
        fused=(
            FusedKernel(
                name="triton_per_fused_mean_mul_sin_0", ops=("aten.sin", "aten.mul"), nodes=("y",)
            ),
            FusedKernel(name="extern_kernels.addmm", ops=("aten.addmm",)),
        ),
    )
    found = kernels(check_of(made.verdict_of(compilation=compilation)))
    assert [(kernel.name, kernel.kind, kernel.ops, kernel.nodes) for kernel in found] == [
        ("triton_per_fused_mean_mul_sin_0", "reduction kept in registers", "sin, mul", "y"),
        ("cpp_fused_add_relu_1", "C++", "add relu", ""),
        ("triton_mm_2", "", "", ""),
        ("extern_kernels.addmm", "library", "addmm", ""),
    ]


def test_only_code_below_the_folder_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "fine.txt").write_text("fine", encoding="utf-8")
    (saved / "link.txt").symlink_to(secret)
    files = files_of(tmp_path)
    found = files.excerpt("saved/fine.txt")
    assert found is not None
    assert found.text == "fine"
    for path in ("secret.txt", str(secret), "saved/../secret.txt", "saved/link.txt", "saved", "\0"):
        assert files.excerpt(path) is None
    nowhere = SavedFiles(base=tmp_path, rootpath=tmp_path)
    assert nowhere.excerpt("saved/fine.txt") is None


def test_links_are_relative_and_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "saved" / "a b#?%:"
    folder.mkdir(parents=True)
    files = files_of(tmp_path)
    assert files.link("saved/a b#?%:") == "../saved/a%20b%23%3F%25%3A"
    assert files.link(str(folder)) == "../saved/a%20b%23%3F%25%3A"
    for path in ("", "saved/none", "javascript:hit()", "//host/x", "\0"):
        assert files.link(path) is None


def test_the_page_has_room_for_so_much_code(tmp_path: Path) -> None:
    texts = {f"guards_{at}.txt": "x = 1\n" * 20_000 for at in range(30)}
    report = report_with(tmp_path / "saved", texts)
    text = page(report, files_of(tmp_path))
    assert text.count("60000 characters more in the file.") == 16
    assert text.count("80000 characters more in the file.") == 1
    assert text.count("Not shown here: ") == 13


def test_a_report_from_a_file_names_what_it_can_not_reach(tmp_path: Path) -> None:
    text = page(report_with(tmp_path / "saved", TEXTS))
    assert "trace of torch" in text
    assert "<a href=" not in text.partition("trace of torch")[0][-20:]
    assert "GraphModule" not in text


def test_the_summary_names_folders_and_the_run(tmp_path: Path) -> None:
    report = report_with(tmp_path / "saved" / "`|<b>", TEXTS)
    text = markdown(report, run_url="https://github.com/o/r/actions/runs/1")
    assert "[artefacts of this run](https://github.com/o/r/actions/runs/1#artifacts)" in text
    assert "<b>" not in text
    assert "<code>" in text.partition("artefacts of this run")[2]


# --- in a browser ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def tab(browser: Page, tmp_path: Path) -> Page:
    file = tmp_path / "pages" / "report.html"
    file.parent.mkdir()
    report = report_with(tmp_path / "saved", TEXTS)
    file.write_text(page(report, files_of(tmp_path)), encoding="utf-8")
    browser.show()
    browser.load(file)
    browser.js("document.querySelector('details.check').open = true")
    return browser


def test_code_unfolds_by_keyboard(tab: Page) -> None:
    assert tab.js("document.querySelectorAll('details.code').length") == len(TEXTS)
    assert tab.js("document.querySelectorAll('details.code[open]').length") == 0
    tab.js("document.querySelector('details.code summary').focus()")
    tab.press("Enter", 13, "\r")
    assert tab.js("document.activeElement.parentElement.open") is True
    assert "return (x.sin(),)" in tab.js("document.querySelector('details.code').innerText")


def test_hostile_code_and_names_show_and_never_run(tab: Page) -> None:
    tab.js("for (const d of document.querySelectorAll('details')) d.open = true")
    assert tab.js("window.hit") is None
    assert tab.complaints() == []
    assert tab.js("document.scripts.length") == 1
    assert tab.js("document.images.length") == 0
    text = tab.js("document.body.innerText")
    assert "'''</pre></details><script>window.hit=1</script>" in text
    assert "async_compile.triton('triton_per_fused_mean_mul_sin_0', '''" in text
    assert "void sin<4, " in text
    assert not set("\x00\x1b\u202e") & set(text)


@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_code_can_be_read_in_both_schemes(tab: Page, scheme: str) -> None:
    tab.show(scheme=scheme)
    assert tab.js(CONTRAST) == []


def test_code_does_not_make_the_page_scroll_sideways(tab: Page) -> None:
    tab.show(width=320)
    tab.js("for (const d of document.querySelectorAll('details')) d.open = true")
    assert tab.js("document.documentElement.scrollWidth") <= 320


def test_links_lead_to_the_files(tab: Page, tmp_path: Path) -> None:
    links = tab.js("[...document.querySelectorAll('ul.saved a, details.code a')].map(a => a.href)")
    assert (tmp_path / "saved" / "trace.log").as_uri() in links
    assert len(links) == 2 + len(TEXTS)
