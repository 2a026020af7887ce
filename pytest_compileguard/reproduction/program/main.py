"""Makes one call twice, eager and compiled, and prints where the two differ.

Where another implementation is given, the compiled side is held against that too.
Exit code 1: they differ. 0: they agree. 2: something is missing, and this says what.
It needs torch and the code under test; a step of training needs pytest-compileguard too.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from pytest_compileguard.reproduction.program.calling import both_sides, side
from pytest_compileguard.reproduction.program.differences import compared, results
from pytest_compileguard.reproduction.program.settings import HERE, SETTINGS, imported


def main() -> int:
    """Make both calls and compare them."""
    print(f"saved with torch {SETTINGS['torch']}, run with {torch.__version__}")  # noqa: T201
    for kind in ("notes", "missing"):
        for text in SETTINGS[kind]:
            print(f"{kind}: {text}")  # noqa: T201
    if SETTINGS["missing"]:
        return 2
    sys.path[:0] = [str((HERE / root).resolve()) for root in SETTINGS["roots"]]
    actual, expected, only = both_sides(loaded_target)
    differences = compared(actual, expected)
    if SETTINGS["has_reference"]:
        other = results(side(loaded_reference(), only=only), actual)
        differences += compared(results(actual, other), other, against="reference")
    for difference in differences:
        print(difference)  # noqa: T201
    print(f"differences: {len(differences)}" if differences else "no difference")  # noqa: T201
    return 1 if differences else 0


def loaded_target() -> Any:
    """Import the target, or load the copy that was saved of it."""
    return loaded("target")


def loaded_reference() -> Any:
    """Import the other implementation, or load the copy that was saved of it."""
    return loaded("reference")


def loaded(name: str) -> Any:
    """Import one of the two, or load its copy."""
    if SETTINGS[name]:
        return imported(SETTINGS[name])
    # A pickle runs code when it is loaded: it is as trusted as the tests that wrote it.
    return torch.load(HERE / f"{name}.pt", weights_only=False)


if __name__ == "__main__":
    sys.exit(main())
