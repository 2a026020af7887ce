"""What torch.compile does to an optimizer on a GPU."""

from __future__ import annotations

from typing import Any


def make_capturable(optimizer: Any) -> bool:
    """Make an optimizer ready for CUDA graphs, as Dynamo does before it compiles ``step``.

    Dynamo sets ``capturable`` for good, in each group whose parameters are on a GPU and have no
    state yet; step counts are then kept on the GPU. Set beforehand, both sides do the same.

    Returns:
        Whether anything was set.
    """
    groups = getattr(optimizer, "param_groups", ())
    found = [group for group in groups if _will_be_capturable(group, optimizer)]
    for group in found:
        group["capturable"] = True
    if found:
        # torch warns of such an optimizer that steps outside a CUDA graph, as the eager side does.
        optimizer._warned_capturable_if_run_uncaptured = True  # read by torch
    return bool(found)


def _will_be_capturable(group: dict[str, Any], optimizer: Any) -> bool:
    fresh = all(p.is_cuda and p not in optimizer.state for p in group["params"])
    return fresh and group.get("capturable") is False
