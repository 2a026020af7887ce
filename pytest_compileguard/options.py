"""What the command line and the ini file asked for.

Precedence (test, command line, ini, default) is resolved in ``plan.make_plan`` for what a test can
say, and here for the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pytest_compileguard.errors import OptionError
from pytest_compileguard.option_list import INI_PREFIX, OPTIONS, PREFIX, Option
from pytest_compileguard.option_values import READERS, BareOrChosen, read_choice

if TYPE_CHECKING:
    import pytest

UpdateMode = Literal["all", "new", "improved"]
Improvements = Literal["offer", "fail"]
ArtifactsFor = Literal["failed", "all"]
Gpus = Literal["off", "auto"]


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
        flag = any(option.dest == key and option.kind == "flag" for option in OPTIONS)
        wanted = "; must be true or false (or yes, no, on, off, 1, 0)" if flag else ""
        raise OptionError(f"ini key {key}: {error}{wanted}") from None


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
