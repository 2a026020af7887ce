"""Tells when torch compiles: what runs then is the compiler, and none of the code of a call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch._dynamo.callback import callback_handler


@contextlib.contextmanager
def while_compiling(begins: Callable[[], None], ends: Callable[[], None]) -> Iterator[None]:
    """Call one function before torch compiles something in the body, and the other after it.

    Backward graphs count, which are compiled in threads of autograd's own.
    """
    # Torch holds a lock meanwhile: were it to compile what is called here, it would wait for ever.
    starts, stops = _eager(begins), _eager(ends)
    callback_handler.register_start_callback(starts)
    callback_handler.register_end_callback(stops)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # a reset drops all of them
            callback_handler.remove_start_callback(starts)
        with contextlib.suppress(ValueError):
            callback_handler.remove_end_callback(stops)


def _eager(function: Callable[[], None]) -> Callable[..., None]:
    def called(*_: object) -> None:
        function()

    return torch.compiler.disable(called)  # type: ignore[no-any-return,no-untyped-call]
