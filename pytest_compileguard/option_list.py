"""The options of pytest-compileguard, each declared once.

The parser, ``--help``, the ini keys, their validation and the table of the README are made from
``OPTIONS``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "--compileguard-"
INI_PREFIX = "compileguard_"
UPDATE_BASELINE = f"{PREFIX}update-baseline"
UPDATE_IN_CI = f"{PREFIX}update-in-ci"


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One option of the group ``compileguard``."""

    name: str
    """With dashes, without the prefix."""
    kind: Literal["flag", "text", "path", "number", "count", "choice"]
    help: str
    ini: bool = True
    """Whether an ini key of the same name exists (with underscores)."""
    metavar: str | None = None
    repeated: bool = False
    """Whether a command that records must repeat it, as results depend on it."""
    choices: tuple[str, ...] = ()
    bare: str = ""
    """The choice that the option stands for without a value; empty: it needs one."""

    @property
    def flag(self) -> str:
        return PREFIX + self.name

    @property
    def dest(self) -> str:
        """The ini key, and the name in pytest's namespace."""
        return INI_PREFIX + self.name.replace("-", "_")

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")

    @property
    def usage(self) -> str:
        """The option with what it takes, as help and README show it."""
        values = "|".join(self.choices)
        if self.bare:
            return f"{self.flag}[={values}]"
        return f"{self.flag} {values or self.metavar}" if values or self.metavar else self.flag


OPTIONS: tuple[Option, ...] = (
    Option(
        name="update-baseline",
        kind="choice",
        choices=("all", "new", "improved"),
        bare="all",
        help="record the results of passing checks as the new baseline: of all of them, of those "
        "that have none, or of those that became better",
        ini=False,
    ),
    Option(
        name="update-in-ci",
        kind="flag",
        help="let baselines be recorded where the environment variable CI is set",
        ini=False,
    ),
    Option(
        name="improvements",
        kind="choice",
        choices=("offer", "fail"),
        help="what a number better than its baseline does: offer to tighten it (the default), "
        "or fail until it is recorded",
    ),
    Option(
        name="strict",
        kind="flag",
        help="fail checks that are inconclusive or that could not be made, and tests that take "
        "compileguard and guard nothing",
    ),
    Option(
        name="no-timing",
        kind="flag",
        help="check compile facts and parity only",
        repeated=True,
    ),
    Option(
        name="disable",
        kind="flag",
        help="make guarded calls plain eager calls and check nothing",
    ),
    Option(
        name="backend",
        kind="text",
        metavar="NAME",
        help="backend of all checks that do not name one (aot_eager needs no compiler)",
        repeated=True,
    ),
    Option(
        name="baseline-dir",
        kind="path",
        metavar="DIR",
        help="root folder of the baselines (default: __compileguard__ beside each test module)",
        repeated=True,
    ),
    Option(
        name="baseline-ref",
        kind="text",
        metavar="REV",
        help="compare with the baselines of another git revision, such as origin/main, "
        "so that a change can't relax what it is held to",
    ),
    Option(
        name="json",
        kind="path",
        metavar="PATH",
        help="write all results to PATH as JSON",
        ini=False,
    ),
    Option(
        name="html",
        kind="path",
        metavar="PATH",
        help="write a report to PATH as one page that opens offline in any browser",
        ini=False,
    ),
    Option(
        name="no-github",
        kind="flag",
        help="write no summary and no annotations where tests run on GitHub Actions",
    ),
    Option(
        name="no-locate",
        kind="flag",
        help="don't make a failing call again to find the stage of the compiler it departs at",
    ),
    Option(
        name="artifacts",
        kind="path",
        metavar="DIR",
        help="save below DIR what explains a failing check: torch's trace, captured graphs, "
        "guards, generated code, tlparse's report where tlparse is installed, and of a call whose "
        "two sides differ the inputs, with a program that makes it again; all of it holds source "
        "code",
    ),
    Option(
        name="artifacts-for",
        kind="choice",
        choices=("failed", "all"),
        help="for which checks traces, graphs and code are saved: failing ones (the default) or "
        "all",
    ),
    Option(
        name="gpus",
        kind="choice",
        choices=("off", "auto"),
        help="auto: each worker of pytest-xdist sees one GPU of those in CUDA_VISIBLE_DEVICES, or "
        "of all (default: off)",
    ),
    Option(
        name="max-time-s",
        kind="number",
        metavar="SECONDS",
        help="longest time that timing one check may take, for both sides together (default: 1)",
        repeated=True,
    ),
    Option(
        name="warmup",
        kind="count",
        metavar="CALLS",
        help="untimed calls of each side before timing (default: 10)",
        repeated=True,
    ),
    Option(
        name="noise-threshold",
        kind="number",
        metavar="RATIO",
        help="relative loss of speedup against the baseline that counts as nothing (default: 0.1; "
        "three times that on the wall clock of calls below 1 ms)",
    ),
)
