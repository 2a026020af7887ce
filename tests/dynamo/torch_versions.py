"""What older torch does otherwise or tells less of, each as it was seen to."""

from __future__ import annotations

import torch

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
BEFORE_2_11 = TORCH < (2, 11)
SILENT = ("generator", "skipped_step") if BEFORE_2_11 else ()
"""Functions of whose frame it does not say that it gives them up."""
AUTOCAST = "autocast" if BEFORE_2_11 else "autocast(cpu)_enabled"
"""What it says has changed if autocast did."""
INT_TO_FLOAT = "type of factor" if BEFORE_2_11 else "type of factor int -> float"
"""What it says of an argument of another type."""
MISCOMPILED = ("class attributes", "default_that_is_written_to") if TORCH < (2, 12) else ()
"""Compiled code keeps what it read of them when it was traced, or drops what it writes."""
JAGGED_IS_COPIED = TORCH >= (2, 13)
"""Whether jagged nested tensors can be copied, so that calls with them are isolated."""
TRACES_CLASS_METHODS = TORCH >= (2, 12)
"""Whether it traces a class method that an attribute holds."""
KEEPS_ITERATORS = TORCH >= (2, 13)
"""Whether compiled code can leave iterators of all kinds in attributes, as iterators."""
