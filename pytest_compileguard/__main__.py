"""Runs the command ``compileguard`` as ``python -m pytest_compileguard``."""

from __future__ import annotations

import sys

from pytest_compileguard.cli import main

if __name__ == "__main__":
    sys.exit(main())
