"""Makes the mirrors of a target (a snapshot, the eager and the compiled side), and their scene."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_compileguard import dynamo
from pytest_compileguard.isolation.ambient import RandomState
from pytest_compileguard.isolation.mirror import Mirror
from pytest_compileguard.isolation.scene import Scene, scene
from pytest_compileguard.target import argument_names

Mirrors = tuple[Mirror, Mirror, Mirror]


def make_mirrors(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    copies_gradients: bool,
) -> Mirrors:
    """Make those of a target that is called so.

    Parameters are shared with the target, unless it holds an optimizer.
    """
    probe = Mirror(share_parameters=True, compiled_form=dynamo.compiled_form)
    probe.target(target)
    probe.arguments(args, kwargs, argument_names(target, len(args)))
    themselves: dict[int, Any] = {}

    def make(*, compiles: bool = False) -> Mirror:
        return Mirror(
            share_parameters=not probe.holds_optimizer,
            copies_gradients=copies_gradients,
            compiled_form=dynamo.compiled_form,
            compiles=compiles,
            themselves=themselves,
        )

    return make(), make(), make(compiles=True)


def scene_of(mirror: Mirror | None, random: RandomState) -> Scene:
    """Make the scene of a call from all that a mirror met of it."""
    if mirror is None:
        return scene(random, ())
    return scene(random, mirror.originals(), mirror.functions.root_space, mirror.not_copied())
