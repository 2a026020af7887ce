"""Which values the limits and arguments of a check may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import cast

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")
"""The modes of ``torch.compile``; a backend of one's own may have others."""
MODE_WANTED = (
    f"one of {', '.join(MODES)}, or with a callable for a backend one that resembles none of these"
)
_ALIKE = 0.8
"""Likeness by difflib from which on a mode is taken for a misspelt one."""
ALLOWANCES = "ids (GB0059), modules (torch.optim) or globs on places (*/encoder.py:41)"

_INTEGERS = {
    "max_graph_breaks": 0,
    "max_recompiles": 0,
    "max_kernels": 0,
    "max_cudagraph_skips": 0,
    "max_kernels_per_call": 0,
    "warmup": 1,
}
_NUMBERS = {  # may it be 0?
    "min_speedup": False,
    "max_compile_time_s": False,
    "max_peak_memory_ratio": False,
    "rtol": True,
    "atol": True,
    "max_time_s": False,
}
BY_MODE = ("min_speedup", "max_compile_time_s", "max_peak_memory_ratio", "max_kernels_per_call")
_CHOICES = {"clock": ("wall", "device"), "cache": ("warm", "cold")}
_NAMED = {"mode": MODES, "modes": MODES}
"""What texts name, besides others that are allowed."""


def refused(name: str, value: object) -> str | None:
    """Say what ``name`` must be if ``value`` is not that, and what was likely meant."""
    if isinstance(value, Mapping) and name in BY_MODE:
        return _refused_by_mode(name, value)
    wanted = _refused(name, value)
    if wanted and name == "modes":
        wanted += _odd_mode(value)
    if wanted and isinstance(value, Mapping) and name in (*_INTEGERS, *_NUMBERS):
        several = ", ".join(BY_MODE)
        return f"{wanted}; it is one for all modes: {{mode: limit}} may be {several}"
    return wanted and wanted + did_you_mean(value, _CHOICES.get(name, _NAMED.get(name, ())))


def refused_mode(mode: object, backend: object) -> str | None:
    """Say what a mode must be that the backend can't have; torch's own ones ignore any other."""
    if mode is None or mode in MODES or callable(backend):
        return None
    return MODE_WANTED + did_you_mean(mode, MODES)


def did_you_mean(value: object, known: Sequence[str]) -> str:
    """Name the allowed value that a text, or the first such text of a list, is nearest to."""
    given = value if isinstance(value, list | tuple) else (value,)
    texts = [one.lower() for one in given if isinstance(one, str) and one not in known]
    close = [near for text in texts for near in get_close_matches(text, known, n=1)]
    return f"; did you mean {close[0]!r}?" if close else ""


def _refused_by_mode(name: str, limits: Mapping[object, object]) -> str | None:
    if not limits:
        return f"{_refused(name, limits)}, for each mode"
    wanted = next((text for one in limits.values() if (text := _refused(name, one))), None)
    return wanted and f"{wanted}, for each mode"


def _refused(name: str, value: object) -> str | None:
    if name in _INTEGERS:
        least = _INTEGERS[name]
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return None if whole else f"a whole number, {least} or more"
    if name in _NUMBERS:
        return _no_number(value, zero=_NUMBERS[name])
    if name in _CHOICES:
        return None if value in _CHOICES[name] else " or ".join(map(repr, _CHOICES[name]))
    fits, wanted = _KINDS[name]
    return None if fits(value) else wanted


def _no_number(value: object, *, zero: bool) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    finite = number and cast("float", value) < float("inf")
    if finite and (cast("float", value) > 0 or (zero and value == 0)):
        return None
    return "a finite number, 0 or more" if zero else "a finite number above 0"


def _are_allowances(value: object) -> bool:
    return isinstance(value, list | tuple) and all(one and isinstance(one, str) for one in value)


def _are_modes(value: object) -> bool:
    listed = isinstance(value, list | tuple) and bool(value)
    return listed and all(mode in MODES for mode in value) and len(set(value)) == len(value)  # type: ignore[attr-defined, arg-type, call-overload]


def _odd_mode(value: object) -> str:
    """Say which entry of a list is no mode, or stands there twice."""
    listed = value if isinstance(value, list | tuple) else ()
    for at, mode in enumerate(listed):
        if mode not in MODES:
            return f"; {mode!r} is none"
        if mode in listed[:at]:
            return f"; {mode!r} stands there twice"
    return ""


def _is_mode(value: object) -> bool:
    """Whether it may be a mode of some backend, and is no misspelt one of torch."""
    if not isinstance(value, str) or not value:
        return False
    return value in MODES or not get_close_matches(value.lower(), MODES, n=1, cutoff=_ALIKE)


_FLAG: tuple[Callable[[object], bool], str] = (
    lambda value: isinstance(value, bool),
    "True, False or None",
)
_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "fullgraph": _FLAG,
    "dynamic": _FLAG,
    "modes": (_are_modes, f"a list of some of {', '.join(MODES)}, each once"),
    "mode": (_is_mode, MODE_WANTED),
    "backend": (
        lambda value: callable(value) or (isinstance(value, str) and value != ""),
        "a name or a callable",
    ),
    "setup": (callable, "a callable without arguments"),
    "allow_graph_breaks": (_are_allowances, f"a list of {ALLOWANCES}"),
    "options": (lambda value: isinstance(value, Mapping), "a mapping"),
}
