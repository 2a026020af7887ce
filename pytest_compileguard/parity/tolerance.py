"""What a test allows two numbers to differ by, and what holds where it says nothing."""

from __future__ import annotations

from typing import NamedTuple

import torch

# The defaults of torch.testing.assert_close (its documentation lists them), needed where a
# test gives only one of the two.
_RTOL = {
    torch.float16: 1e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 1.3e-6,
    torch.float64: 1e-7,
    torch.complex32: 1e-3,
    torch.complex64: 1.3e-6,
    torch.complex128: 1e-7,
}
_WIDE = (torch.float64, torch.complex128)


class Tolerance(NamedTuple):
    """What the test allows; ``None``: by dtype."""

    rtol: float | None
    atol: float | None

    @property
    def explicit(self) -> bool:
        """Whether the test itself says what is allowed; then nothing else is."""
        return self.rtol is not None or self.atol is not None

    def for_dtype(self, dtype: torch.dtype) -> tuple[float, float]:
        if dtype not in _RTOL:  # whole numbers and truth values are exact
            return 0.0, 0.0
        rtol = _RTOL[dtype] if self.rtol is None else self.rtol
        default = 1e-7 if dtype in _WIDE else 1e-5
        return rtol, default if self.atol is None else self.atol
