"""Options that can't be kept together: a run with both would not do what one of them promises."""

from __future__ import annotations

import os

from pytest_compileguard.errors import OptionError
from pytest_compileguard.option_list import INI_PREFIX, PREFIX, UPDATE_BASELINE, UPDATE_IN_CI
from pytest_compileguard.options import WITHOUT_REF, Options


def refuse_contradictions(options: Options) -> None:
    """Refuse what could only be half done.

    Raises:
        OptionError: Two options contradict, or one needs another, or what CI allows.
    """
    if options.disable:
        _refuse_disabled(options)
    if options.update_baseline:
        _refuse_recording(options)
    by_hand = "artifacts_for" not in options.from_ini
    if options.artifacts_for and by_hand and options.artifacts is None:
        raise OptionError(
            f"{PREFIX}artifacts-for: says for which checks, but nothing says where to save; add "
            f"{PREFIX}artifacts=DIR"
        )


def _refuse_disabled(options: Options) -> None:
    if options.update_baseline:
        raise OptionError(
            f"{UPDATE_BASELINE}: nothing can be recorded while checks are disabled; leave out "
            f"{PREFIX}disable, or set {INI_PREFIX}disable to false"
        )
    if options.strict:
        strict, disable = options.origin("strict"), options.origin("disable")
        raise OptionError(
            f"{strict} and {disable} can't both be kept: nothing would be checked, and what is not "
            f"checked must fail; choose one of the two, {_without(options, 'strict')} or "
            f"{_without(options, 'disable')}"
        )


def _without(options: Options, field: str) -> str:
    """Say how to switch an option off where it was switched on."""
    if field in options.from_ini:
        return f"-o {INI_PREFIX}{field}=false"
    return f"without {options.origin(field)}"


def _refuse_recording(options: Options) -> None:
    if options.baseline_ref:
        raise OptionError(
            f"{options.origin('baseline_ref')}: {options.baseline_ref!r}: another revision can't "
            f"be recorded to; leave out {UPDATE_BASELINE}, or {PREFIX}baseline-ref, or add "
            f"{' '.join(WITHOUT_REF)} where the ini file names it"
        )
    if _is_ci() and not options.update_in_ci:
        raise OptionError(
            f"{UPDATE_BASELINE}: refused, since the environment variable CI is set: a run in CI "
            f"must not move what it is held to; record elsewhere, or add {UPDATE_IN_CI}"
        )


def _is_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")
