"""Makes a call again in float64, or once more for the random numbers that it draws."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from pytest_compileguard import dynamo
from pytest_compileguard.isolation.mirror import Mirror
from pytest_compileguard.isolation.quiet import silenced
from pytest_compileguard.isolation.widening import Nudge, Rounding, Widening
from pytest_compileguard.parity.draws import Draw, Recording, UnrepeatableError
from pytest_compileguard.parity.gradients import Cotangents
from pytest_compileguard.parity.rounded_operators import RoundedOperators
from pytest_compileguard.parity.side import Side, run_side
from pytest_compileguard.shadow.prepared import Prepared

_MOST_QUOTED = 120
Types = Callable[
    [Iterable[tuple[torch.Tensor, torch.dtype]]], contextlib.AbstractContextManager[object]
]
"""Makes what sees to the types that code asks for by name, of the types that tensors have."""


def run_in_float64(
    target: Any,
    snapshot: Prepared,
    cotangents: Cotangents,
    nudge: Nudge | None,
    drawing: contextlib.AbstractContextManager[object],
    types: Types,
) -> Side | str:
    """Make a call in float64 with the arguments that a snapshot kept; or say why that fails.

    With a nudge, values move by as much as rounding may have moved them.
    ``drawing`` sees to the random numbers that it draws, ``types`` to the types that it asks for.
    """
    rounding = Rounding(nudge) if nudge is not None and nudge.moves_inputs else None
    mirror = Mirror(
        share_parameters=True,
        compiled_form=dynamo.compiled_form,
        widening=Widening(rounding),
        themselves=snapshot.mirror.themselves,
    )
    wide = {p: t.to(_wide(t.dtype)) for p, t in cotangents.by_path.items()}
    # The outermost mode: what it draws itself is none of the target's random numbers.
    rounded = [] if nudge is None or nudge.moves_inputs else [RoundedOperators(nudge)]
    side = _run_on(mirror, target, snapshot, Cotangents(wide), (*rounded, drawing), types)
    return side if side.error is None else f"it {_raised(side.error)}"


def recorded_draws(target: Any, snapshot: Prepared, cotangents: Cotangents) -> list[Draw] | str:
    """Make a call once more for the random numbers that it draws; or say why that fails."""
    mirror = Mirror(
        share_parameters=False,
        compiled_form=dynamo.compiled_form,
        themselves=snapshot.mirror.themselves,
    )
    recording = Recording()
    side = _run_on(mirror, target, snapshot, cotangents, [recording])
    if side.error is not None:
        return f"the call draws random numbers, and {_raised(side.error)}"
    if not recording.draws:
        return "the call draws random numbers by other means than torch's operators"
    return recording.draws


def _raised(error: Exception) -> str:
    if isinstance(error, UnrepeatableError):
        return f"can't draw them again: {error}"
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    quoted = text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}..."
    return f"raises {type(error).__name__}{f': {quoted}' if quoted else ''}"


def _run_on(
    mirror: Mirror,
    target: Any,
    snapshot: Prepared,
    cotangents: Cotangents,
    within: Sequence[contextlib.AbstractContextManager[object]],
    types: Types = contextlib.nullcontext,
) -> Side:
    args, kwargs, _ = snapshot.copies
    twin = mirror.target(target)
    copies = mirror.arguments(args, kwargs, snapshot.names)
    with silenced(), dynamo.eager_stance(), contextlib.ExitStack() as stack:
        for context in within:
            stack.enter_context(context)
        stack.enter_context(types(mirror.dtypes()))
        outside = snapshot.surroundings.values
        return run_side(twin, mirror, copies, snapshot.names, cotangents, outside)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64
