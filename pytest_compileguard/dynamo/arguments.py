"""What arguments ``torch.compile`` can't be called with, as torch itself only says too late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import torch
import torch._inductor
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.exc import InvalidBackend

from pytest_compileguard.dynamo.stages import STAGES


def unknown_backend(backend: object) -> str | None:
    """Say that torch knows no backend of this name, and which it knows."""
    if not isinstance(backend, str):
        return None
    try:
        lookup_backend(backend)
    except InvalidBackend:
        every: list[str] = torch.compiler.list_backends(())
        known = ", ".join(sorted({*torch.compiler.list_backends(), *STAGES}))
        return f"torch knows no such backend{_near(backend, every)} Known: {known}"
    except Exception:  # noqa: BLE001  # one of another package, which may raise anything
        return None  # as it will again when it compiles, and is told then
    return None


def unknown_options(options: Mapping[str, Any], backend: object) -> str | None:
    """Say which options inductor does not have, or not with such a value."""
    if not options or backend not in (None, "inductor"):
        return None
    known = torch._inductor.list_options()
    for name in options:
        if name.replace("-", "_") not in known:
            listed = "Known: torch._inductor.list_options()"
            return f"inductor has no option {name!r}{_near(name, known)} {listed}"
    try:
        torch._TorchCompileInductorWrapper(None, dict(options), None)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return None


def _near(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "."
