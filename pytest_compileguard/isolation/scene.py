"""All that a call starts from besides its target and its arguments."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch.utils.hooks import RemovableHandle

from pytest_compileguard.answers import is_module
from pytest_compileguard.isolation.ambient import RandomState, random_state
from pytest_compileguard.isolation.ownership import is_users_module
from pytest_compileguard.isolation.snapshot import Snapshot
from pytest_compileguard.isolation.surroundings import Surroundings


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """All that a call starts from besides its target and its arguments."""

    random: RandomState
    surroundings: Surroundings
    snapshot: Snapshot
    hook_number: int
    """Key under which torch keeps the next hook, of whatever object."""
    modules: frozenset[str]
    """Names of all that was imported: what runs once is not put back."""

    @property
    def truncated(self) -> bool:
        """Whether there is more than can be put back."""
        return self.surroundings.truncated or self.snapshot.truncated

    def now(self) -> Scene:
        """The same places as they are at this moment."""
        return _read(random_state(), self.surroundings)

    def numbering_hooks_as(self, other: Scene) -> Scene:
        """Let hooks have numbers from those on, so that none replaces a hook of the test."""
        return dataclasses.replace(self, hook_number=other.hook_number)

    def imported_since(self, earlier: Scene) -> tuple[str, ...]:
        """Modules of the user that were imported between two moments."""
        new: dict[str, Any] = {
            name: sys.modules.get(name) for name in sorted(self.modules - earlier.modules)
        }
        return tuple(
            n for n, module in new.items() if is_module(module) and is_users_module(module)
        )

    def restore(self) -> None:
        self.random.restore()
        RemovableHandle.next_id = self.hook_number
        self.surroundings.put_back(self.snapshot)


def scene(
    random: RandomState,
    met: Iterable[Any],
    root_space: dict[str, Any] | None = None,
    not_copied: Iterable[Any] = (),
) -> Scene:
    """The scene of a call, whose random state was read already, that meets these objects.

    Of functions whose globals are ``root_space``, those that hold state have copies. What is
    ``not_copied`` of the objects is looked into as what globals hold.
    """
    return _read(random, Surroundings(met, root_space, not_copied))


def _read(random: RandomState, surroundings: Surroundings) -> Scene:
    return Scene(
        random=random,
        surroundings=surroundings,
        snapshot=surroundings.read(),
        hook_number=RemovableHandle.next_id,
        modules=frozenset(sys.modules),
    )
