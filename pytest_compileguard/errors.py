"""The exceptions of this package.

Each message says which value is wrong, what is allowed, where the value came
from and what to do. ``plugin`` turns them into one clean line for the user.
"""

from __future__ import annotations


class CompileGuardError(Exception):
    """Base of every error that this package raises on purpose."""


class SpecError(CompileGuardError):
    """A marker or an override of a guarded call asks for something impossible."""


class OptionError(CompileGuardError):
    """A command line option or an ini key holds a value that is not allowed."""


class BaselineError(CompileGuardError):
    """A stored baseline can't be read or written; the file is left as it was."""


class DeviceError(CompileGuardError):
    """What was asked for needs a device that is not there."""


class UnsupportedTorchError(CompileGuardError):
    """The trace of this torch is not understood, so no number can be trusted."""


class IsolationError(CompileGuardError):
    """A target or an argument can't be copied for the shadow call."""
