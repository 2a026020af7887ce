"""What the author of a test asked for: the marker and its limits.

``CompileCheck`` is the one list of limits. The ``--markers`` text, the typed
decorator and the validation of markers and overrides all follow from it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, overload

import msgspec
from msgspec import UNSET, UnsetType

from pytest_compileguard.errors import SpecError
from pytest_compileguard.limit_values import BY_MODE, did_you_mean, refused, refused_mode

if TYPE_CHECKING:
    import pytest

    # `typing` has it from Python 3.11 on, the oldest one supported is 3.10.
    from typing_extensions import Unpack

MARKER = "compile_check"

T = TypeVar("T", bound=Callable[..., Any])

Backend = str | Callable[..., Any]


class Limits(TypedDict, total=False):
    """The keyword arguments of ``compile_check`` and of ``compileguard(...)``."""

    max_graph_breaks: int | None
    max_recompiles: int | None
    allow_graph_breaks: Sequence[str] | None
    max_kernels: int | None
    max_cudagraph_skips: int | None
    min_speedup: float | Mapping[str, float] | None
    max_compile_time_s: float | Mapping[str, float] | None
    max_peak_memory_ratio: float | Mapping[str, float] | None
    max_kernels_per_call: int | Mapping[str, int] | None
    mode: str | None
    modes: Sequence[str] | None
    backend: Backend | None
    fullgraph: bool | None
    dynamic: bool | None
    options: Mapping[str, Any] | None
    rtol: float | None
    atol: float | None
    warmup: int | None
    max_time_s: float | None
    clock: Literal["wall", "device"] | None
    cache: Literal["warm", "cold"] | None
    setup: Callable[[], Any] | None


class CompileCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One wish, each part of which may be unset (then an outer marker decides).

    A limit set to ``None`` is switched off, also where an outer marker sets it.
    """

    max_graph_breaks: int | UnsetType | None = UNSET
    """Most graph-break sites that are accepted, 0 or more."""
    max_recompiles: int | UnsetType | None = UNSET
    """Most recompiles that are accepted over the whole call sequence, 0 or more."""
    allow_graph_breaks: Any = UNSET
    """Breaks that don't count: ids (`GB0059`), modules (`torch.optim`), places (`*/net.py:41`)."""
    max_kernels: int | UnsetType | None = UNSET
    """Most kernels that inductor may generate, 0 or more."""
    max_cudagraph_skips: int | UnsetType | None = UNSET
    """How often CUDA graphs may be skipped in a mode that promises them, 0 or more."""
    min_speedup: float | dict[str, float] | UnsetType | None = UNSET
    """Least speedup, eager time / compiled time, above 0; 1.2 means 20 % more calls a second."""
    max_compile_time_s: float | dict[str, float] | UnsetType | None = UNSET
    """Most seconds of cold compiling over the whole call sequence, above 0."""
    max_peak_memory_ratio: float | dict[str, float] | UnsetType | None = UNSET
    """Most device memory of a compiled call, as a multiple of what an eager one needs, above 0."""
    max_kernels_per_call: int | dict[str, int] | UnsetType | None = UNSET
    """Most kernels that one warm compiled call may launch on a GPU, 0 or more."""
    mode: str | UnsetType | None = UNSET
    """``mode`` of ``torch.compile``."""
    modes: Any = UNSET
    """Modes of ``torch.compile``: one check for each; some limits may then be `{mode: limit}`."""
    backend: Any = UNSET
    """``backend`` of ``torch.compile``: a name or a callable."""
    fullgraph: bool | UnsetType | None = UNSET
    """``fullgraph`` of ``torch.compile``."""
    dynamic: bool | UnsetType | None = UNSET
    """``dynamic`` of ``torch.compile``."""
    options: dict[str, Any] | UnsetType | None = UNSET
    """``options`` of ``torch.compile``."""
    rtol: float | UnsetType | None = UNSET
    """Relative tolerance of parity, 0 or more; ``None``: by dtype, as ``torch.testing`` does."""
    atol: float | UnsetType | None = UNSET
    """Absolute tolerance of parity, 0 or more; ``None``: by dtype, as ``torch.testing`` does."""
    warmup: int | UnsetType | None = UNSET
    """Untimed calls of each side before timing, 1 or more."""
    max_time_s: float | UnsetType | None = UNSET
    """Seconds that timing may take for both sides together, above 0."""
    clock: str | UnsetType | None = UNSET
    """Clock that is gated: `"wall"`, launches included, or `"device"`, kernels alone, on a GPU."""
    cache: str | UnsetType | None = UNSET
    """`"warm"`, or `"cold"`: the L2 cache of the GPU is flushed before each timed call."""
    setup: Any = UNSET
    """Called without arguments before each timed call, untimed; may give new `(args, kwargs)`."""


NAMES: tuple[str, ...] = tuple(sorted(CompileCheck.__struct_fields__))

WATCHED_LIMITS = frozenset(
    {
        "max_graph_breaks",
        "max_recompiles",
        "allow_graph_breaks",
        "max_kernels",
        "max_cudagraph_skips",
    }
)
"""What can be checked of a block that is only watched."""
_RIVALS = ("mode", "modes", "options")


@overload
def compile_check(target: T, /) -> T: ...
@overload
def compile_check(**limits: Unpack[Limits]) -> pytest.MarkDecorator: ...
def compile_check(*targets: Any, **limits: Any) -> Any:
    """Mark a test, a class or (as ``pytestmark``) a module as checked.

    Equal to ``pytest.mark.compile_check(**limits)``, with types. Bare, it checks
    that something was compiled, that compiled and eager agree, and the baseline.
    A limit that is unknown or not allowed is refused when tests are collected:
    only then is the test known that it stands on.
    """
    import pytest  # noqa: PLC0415  # this room is used without pytest too

    return getattr(pytest.mark, MARKER)(*targets, **limits)


def make_spec(limits: Mapping[str, Any], *, origin: str, own: tuple[str, ...] = ()) -> CompileCheck:
    """Validate keyword limits.

    Args:
        limits: By their names.
        origin: Says in messages where they came from.
        own: What else may be named there.

    Raises:
        SpecError: A name is unknown or a value is not allowed.
    """
    for name, value in limits.items():
        if name not in NAMES:
            raise SpecError(_unknown(name, origin, (*own, *NAMES)))
        if value is not None and (wanted := refused(name, value)):
            raise SpecError(f"{origin}: {name}={value!r}: must be {wanted}")
    named = [name for name in _RIVALS if limits.get(name) is not None]
    if len(named) > 1:
        raise SpecError(f"{origin}: torch.compile takes either {' or '.join(named)}, not both")
    return CompileCheck(**limits)


def spec_from_marks(marks: Iterable[pytest.Mark], *, nodeid: str) -> CompileCheck:
    """Merge the marks of one test, nearest first; the nearest wins key by key.

    Raises:
        SpecError: A mark has positional arguments, or limits that are not allowed.
    """
    merged: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            raise SpecError(_positional(f"{nodeid}: {MARKER}"))
        make_spec(mark.kwargs, origin=f"{nodeid}: {MARKER}")
        merged = _without_rival({**mark.kwargs}, merged) | merged
    _refuse_unknown_mode(merged, origin=f"{nodeid}: {MARKER}")
    _refuse_other_modes(merged, origin=f"{nodeid}: {MARKER}")
    return CompileCheck(**merged)


def override(
    spec: CompileCheck, limits: Mapping[str, Any], *, origin: str, own: tuple[str, ...] = ()
) -> CompileCheck:
    """Let the limits of one guarded target win over those of the markers; see ``make_spec``.

    Raises:
        SpecError: A name is unknown or a value is not allowed.
    """
    make_spec(limits, origin=origin, own=own)
    outer = {n: v for n in NAMES if (v := getattr(spec, n)) is not UNSET}
    if limits.get("modes") is not None:
        raise SpecError(
            f"{origin}: modes={limits['modes']!r}: makes tests, so it belongs to the marker; "
            "here, name one mode"
        )
    if outer.get("modes") is not None and (named := [n for n in _RIVALS if n in limits]):
        raise SpecError(
            f"{origin}: {named[0]}={limits[named[0]]!r}: the marker's modes={outer['modes']!r} "
            "name the mode of this check; leave one of the two out"
        )
    merged = _without_rival(outer, limits) | dict(limits)
    _refuse_unknown_mode(merged, origin=origin)
    _refuse_other_modes(merged, origin=origin)
    return CompileCheck(**merged)


def refuse_unwatchable(limits: Mapping[str, Any], *, origin: str) -> None:
    """Let no limit be given to a watched block that only a guarded target could keep.

    Raises:
        SpecError: A name is unknown, or a limit of guarded targets.
    """
    known = sorted(WATCHED_LIMITS)
    for name in limits:
        if name not in NAMES:
            raise SpecError(_unknown(name, origin, ("name", *known)))
    if odd := sorted(set(limits) - WATCHED_LIMITS):
        raise SpecError(
            f"{origin}: {', '.join(odd)} can't be checked by watching. Known: {', '.join(known)}"
        )


def with_mode(spec: CompileCheck, mode: str) -> CompileCheck:
    """Reduce a spec with ``modes`` to one of them, and its limits to those of that mode."""
    known = {n: v for n in NAMES if (v := getattr(spec, n)) is not UNSET}
    limits = {n: v.get(mode) if isinstance(v, Mapping) else v for n, v in known.items()}
    limits["options"] = known.get("options", UNSET)
    return CompileCheck(**(limits | {"modes": UNSET, "mode": mode}))


def marker_help() -> str:
    """Make the line that ``pytest --markers`` shows, from the fields themselves."""
    return (
        f"{MARKER}({', '.join(f'{name}=' for name in CompileCheck.__struct_fields__)}): "
        "guard the targets that the test passes to the fixture `compileguard`: compile them, "
        "count graph breaks and recompiles, compare with eager, time both, and fail on a limit "
        "or a baseline that is not kept. All arguments are optional keywords."
    )


def _without_rival(outer: dict[str, Any], inner: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the outer ``mode`` if the inner level says ``options``, and so on."""
    for name in _RIVALS:
        if inner.get(name) is not None:
            for rival in set(_RIVALS) - {name}:
                outer.pop(rival, None)
    return outer


def _refuse_unknown_mode(limits: Mapping[str, Any], *, origin: str) -> None:
    """Let no mode be asked for that the backend doesn't have: most would ignore it."""
    mode = limits.get("mode")
    if wanted := refused_mode(mode, limits.get("backend")):
        raise SpecError(f"{origin}: mode={mode!r}: must be {wanted}")


def _refuse_other_modes(limits: Mapping[str, Any], *, origin: str) -> None:
    """Let no limit be named for a mode that no check has: it would hold for nothing."""
    modes = limits.get("modes") or ()
    for name in BY_MODE:
        value = limits.get(name)
        if isinstance(value, Mapping) and (other := [mode for mode in value if mode not in modes]):
            named = f"names the mode{'s' * (len(other) > 1)} {', '.join(map(repr, other))}"
            known = f"modes={tuple(modes)!r}" if modes else "no modes= are given here"
            close = did_you_mean(other, modes)
            raise SpecError(f"{origin}: {name}={value!r}: {named}, but {known}{close}")


def _unknown(name: str, origin: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else "."
    if name == "reference":
        hint = "; pass it to the fixture: compileguard(target, reference=...)."
    return f"{origin}: unknown limit {name!r}{hint} Known: {', '.join(known)}"


def _positional(origin: str) -> str:
    return f"{origin}: takes keyword arguments only. Known: {', '.join(NAMES)}"
