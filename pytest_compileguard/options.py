"""What the command line and the ini file asked for.

``OPTIONS`` is the one list: the parser, ``--help``, the ini keys and their
validation are made from it. Precedence (test, command line, ini, default) is
resolved in ``plan.make_plan`` for what a test can say, and here for the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pytest_compileguard.errors import OptionError
from pytest_compileguard.option_values import READERS, BareOrChosen, read_choice

if TYPE_CHECKING:
    import pytest

PREFIX = "--compileguard-"
INI_PREFIX = "compileguard_"
UPDATE_BASELINE = f"{PREFIX}update-baseline"
UPDATE_IN_CI = f"{PREFIX}update-in-ci"

UpdateMode = Literal["all", "new", "improved"]
Improvements = Literal["offer", "fail"]
ArtifactsFor = Literal["failed", "all"]
Gpus = Literal["off", "auto"]


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


WITHOUT_REF = ("-o", f"{INI_PREFIX}baseline_ref=")
"""What to add to a command line so that the ini file names no revision."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one session. ``None``: neither command line nor ini says."""

    update_baseline: UpdateMode | None = None
    update_in_ci: bool = False
    improvements: Improvements | None = None
    strict: bool = False
    no_timing: bool = False
    disable: bool = False
    backend: str | None = None
    baseline_dir: Path | None = None
    baseline_ref: str | None = None
    json: Path | None = None
    html: Path | None = None
    no_github: bool = False
    no_locate: bool = False
    artifacts: Path | None = None
    artifacts_for: ArtifactsFor | None = None
    gpus: Gpus | None = None
    max_time_s: float | None = None
    warmup: int | None = None
    noise_threshold: float | None = None
    from_ini: frozenset[str] = frozenset()
    """Names of the fields that the ini file gave, and not the command line."""
    repeated: tuple[str, ...] = ()
    """Arguments of this command line that one which records must repeat."""
    rootpath: Path = Path()
    """The folder that node ids are relative to."""
    called_in: Path = Path()
    """The folder in which pytest was called."""

    def origin(self, field: str) -> str:
        """Say what gave a field its value: the option, or the ini key."""
        if field in self.from_ini:
            return f"ini key {INI_PREFIX}{field}"
        return PREFIX + field.replace("_", "-")

    def recording_arguments(self, nodeid: str) -> tuple[str, ...]:
        """Give what to pass to pytest, from the same folder, to record one test again."""
        module, separator, test = nodeid.partition("::")
        path = _way(self.called_in, self.rootpath / module) if module else ""
        return (f"{path}{separator}{test}", *self.repeated)


def add_options(parser: pytest.Parser) -> None:
    """Declare every option and its ini key."""
    group = parser.getgroup("compileguard", "torch.compile checks (pytest-compileguard)")
    for option in OPTIONS:
        # The default is None, so that an ini key is not hidden by it.
        arguments: dict[str, Any] = {"dest": option.dest, "default": None, "help": option.help}
        names: tuple[str, ...] = (option.flag,)
        if option.kind == "flag":
            arguments |= {"action": "store_const", "const": True}
        elif option.bare:
            names += tuple(f"{option.flag}={choice}" for choice in option.choices)
            arguments |= {"action": BareOrChosen, "nargs": 0, "const": option.bare}
        else:
            arguments["metavar"] = option.metavar or f"{{{','.join(option.choices)}}}"
        group.addoption(*names, **arguments)
        if option.ini:
            kind: Literal["bool", "string"] = "bool" if option.kind == "flag" else "string"
            parser.addini(option.dest, option.help, type=kind, default=None)


def options_from_config(config: pytest.Config) -> Options:
    """Resolve command line, then ini, then nothing.

    Raises:
        OptionError: A value can't be read as what it must be.
    """
    return Options(
        **{option.field: _resolve(config, option) for option in OPTIONS},
        from_ini=frozenset(option.field for option in OPTIONS if _is_from_ini(config, option)),
        repeated=tuple(_repeated(config)),
        rootpath=config.rootpath,
        called_in=config.invocation_params.dir,
    )


def pins_gpus(early_config: pytest.Config) -> bool:
    """Whether workers get a GPU each, asked before conftests and the command line are read.

    A value that is not allowed is refused later, with all others.
    """
    dest = f"{INI_PREFIX}gpus"
    value = getattr(early_config.known_args_namespace, dest, None)
    try:
        return bool((value or _from_ini(early_config, dest)) == "auto")
    except OptionError:
        return False


def _resolve(config: pytest.Config, option: Option) -> Any:
    value, origin, base = config.getoption(option.dest), option.flag, config.invocation_params.dir
    if value == "":  # from a variable that is not set; the default can't be what was meant
        raise OptionError(f"{origin}: '': must not be empty")
    if value is None and option.ini:
        value, origin = _from_ini(config, option.dest), f"ini key {option.dest}"
        base = config.inipath.parent if config.inipath else config.rootpath
    if option.kind == "flag":
        return bool(value)
    if value is None or value == "":
        return None
    if option.kind == "choice":
        return read_choice(option.choices, str(value), origin)
    return READERS[option.kind](str(value), origin, base)


def _from_ini(config: pytest.Config, key: str) -> Any:
    try:
        return config.getini(key)
    except Exception as error:  # noqa: BLE001  # UsageError or a builtin one, by version of pytest
        raise OptionError(f"ini key {key}: {error}") from None


def _repeated(config: pytest.Config) -> Iterator[str]:
    for option in OPTIONS:
        value = config.getoption(option.dest)
        if option.repeated and value is not None:
            yield option.flag if option.kind == "flag" else f"{option.flag}={value}"
        if option.name == "baseline-ref" and _is_from_ini(config, option):
            yield from WITHOUT_REF


def _is_from_ini(config: pytest.Config, option: Option) -> bool:
    """Whether the ini file says something, and the command line does not."""
    return (
        option.ini
        and config.getoption(option.dest) is None
        and bool(_from_ini(config, option.dest))
    )


def _way(start: Path, end: Path) -> str:
    """Give the path from one folder to a file, as a shell there understands it."""
    try:
        return Path(os.path.relpath(end, start)).as_posix()
    except ValueError:  # on another drive
        return end.as_posix()
