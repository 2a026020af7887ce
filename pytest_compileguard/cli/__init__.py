"""The command ``compileguard``: looks at stored baselines, compares, merges and prunes them.

One file a subcommand. Each has ``HELP``, ``add_arguments`` and ``run``; a new one is a line in
``SUBCOMMANDS``. Nothing here imports torch or pytest, so that it runs where neither is installed.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from pytest_compileguard import __version__
from pytest_compileguard.cli import check, diff, merge, prune, report, schema, show
from pytest_compileguard.cli.output import ERROR, FORMATS, Output, rendered
from pytest_compileguard.errors import CompileGuardError
from pytest_compileguard.report.plain_text import plain

SUBCOMMANDS: dict[str, ModuleType] = {
    "show": show,
    "diff": diff,
    "merge": merge,
    "prune": prune,
    "check": check,
    "schema": schema,
    "report": report,
}

_EXIT_CODES = (
    "exit codes: 0 fine (report: shown, whether the run passed or failed), 1 a regression or a "
    "difference, 2 an error"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; give its exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        output: Output = SUBCOMMANDS[parsed.subcommand].run(parsed)
    except CompileGuardError as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(f"{error.filename or 'error'}: {error.strerror or error}")
    return _printed(output, parsed.format)


def _printed(output: Output, form: str) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may lack characters of a name
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(rendered(output, form))
        sys.stdout.flush()
    except BrokenPipeError:  # of a reader such as ``head`` that has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return output.code


def _failed(message: str) -> int:
    sys.stderr.write(f"compileguard: error: {plain(message)}\n")
    return ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="compileguard",
        description="Looks at the baselines of pytest-compileguard.",
        epilog=_EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"compileguard {__version__}")
    subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="subcommand")
    for name, module in SUBCOMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=module.HELP, description=module.HELP, epilog=_EXIT_CODES
        )
        module.add_arguments(subparser)
        subparser.add_argument(
            "--format", choices=FORMATS, default="text", help="how to print (default: text)"
        )
    return parser
