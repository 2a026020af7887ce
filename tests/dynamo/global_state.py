"""Reads what a check must leave as it was."""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
import warnings
from typing import Any

import numpy as np
import torch
import torch._dynamo.callback
import torch._dynamo.config
import torch._dynamo.convert_frame
import torch._functorch.config
import torch._inductor.config
import torch._inductor.metrics
import torch.compiler.config
from torch._dynamo import eval_frame

_CONFIGS = {
    "dynamo": torch._dynamo.config,
    "inductor": torch._inductor.config,
    "functorch": torch._functorch.config,
    "compiler": torch.compiler.config,
}


def snapshot(*, random_numbers: bool = True) -> dict[str, Any]:
    """Give all of it as values that can be compared."""
    found: dict[str, Any] = {
        "stance": eval_frame._stance,
        "environment": {n: v for n, v in os.environ.items() if n != "PYTEST_CURRENT_TEST"},
        "warnings": list(warnings.filters),
        "logging.disable": logging.root.manager.disable,
        "callbacks": (
            list(torch._dynamo.callback.callback_handler.start_callbacks),
            list(torch._dynamo.callback.callback_handler.end_callbacks),
        ),
        "bytecode hooks": dict(torch._dynamo.convert_frame._bytecode_hooks),
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")],
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "dispatch modes": torch.utils._python_dispatch._get_current_dispatch_mode_stack(),
        "saved tensor hooks": torch._C._autograd._top_saved_tensors_default_hooks(True),
        "profiler": torch._C._autograd._profiler_enabled(),
        "tracers": (sys.gettrace(), sys.getprofile()),
        "collector": (gc.isenabled(), gc.get_threshold()),
    }
    found |= {f"log {name}": value for name, value in _logs().items()}
    for name, config in _CONFIGS.items():
        values = config.get_config_copy()
        found |= {f"{name}.{key}": value for key, value in values.items()}
    return found | (_random() if random_numbers else {})


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Name what differs, with both values."""
    new = {name for name in after if name.startswith("log ") and name not in before}
    before = before | dict.fromkeys(new, (logging.NOTSET, True, False, (), ()))
    # Modules make their logs when they are imported, with handlers if they like.
    after = after | {name: (*after[name][:3], (), after[name][4]) for name in new}
    pairs = {name: (before.get(name), after.get(name)) for name in before | after}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _logs() -> dict[str, Any]:
    return {
        name: (log.level, log.propagate, log.disabled, tuple(log.handlers), tuple(log.filters))
        for name, log in logging.root.manager.loggerDict.items()
        if isinstance(log, logging.Logger) and name.partition(".")[0] == "torch"
    }


def _random() -> dict[str, Any]:
    return {
        "random of torch": torch.get_rng_state().tolist(),
        "random of Python": random.getstate(),
        "random of numpy": repr(np.random.get_state()),  # noqa: NPY002  # the global one
    }
