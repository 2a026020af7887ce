"""Keeps code that compiles itself eager, and lets torch's own operators work as they do in eager.

Operators such as ``torch.cond`` or ``map`` capture the functions they are given by
``torch.compile`` with its backend ``"eager"``, also where nobody compiles: the stance
``"force_eager"`` takes that from them, and what they then return can't be differentiated, or is
of another form.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch._dynamo.config
import torch._higher_order_ops.utils
from torch._dynamo import eval_frame
from torch.utils._python_dispatch import is_in_torch_dispatch_mode


class _EagerButOperators:
    """A stance that is asked anew each time compiled code is entered, by the thread that does."""

    skip_guard_eval_unsafe = False
    backend = None

    def __init__(self) -> None:
        self._allows_empty = torch._dynamo.config.allow_empty_graphs

    @property
    def stance(self) -> str:
        # Within a dispatch mode Dynamo leaves a frame alone, and from then on for good: every later
        # `torch.cond` of the process would fail.
        captures = self._in_operator() and not is_in_torch_dispatch_mode(include_infra_modes=False)
        return "default" if captures else "force_eager"

    def _in_operator(self) -> bool:
        asked = getattr(torch._higher_order_ops.utils, "_in_hop_compile", None)
        if asked is not None:
            return bool(asked())
        # torch before 2.11 sets this, and nothing else does, while an operator captures.
        return bool(torch._dynamo.config.allow_empty_graphs) and not self._allows_empty


@contextlib.contextmanager
def eager_stance() -> Iterator[None]:
    """Make code that is compiled by itself run eager inside.

    What an operator captures runs with the backend ``"eager"``: its numbers are those of eager.
    """
    before = eval_frame._set_stance(_EagerButOperators())  # type: ignore[arg-type]
    try:
        yield
    finally:
        eval_frame._set_stance(before)
