"""``compileguard schema``: the JSON Schema of the files."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from pytest_compileguard.baseline.entries import SCHEMA, FactsFile, TimingsFile
from pytest_compileguard.cli.output import FINE, Output

HELP = "print the JSON Schema of the files"
KINDS = {"facts": FactsFile, "timings": TimingsFile}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=tuple(KINDS), nargs="?", default="facts")


def run(arguments: argparse.Namespace) -> Output:
    schema = schema_of_kind(arguments.kind)
    arguments.format = "json"  # it has no other form
    return Output(code=FINE, lines=(), data=schema)


def schema_of_kind(kind: str) -> dict[str, Any]:
    """Make the schema of one kind of file from the records that read it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"pytest-compileguard {kind}, schema {SCHEMA}",
        **msgspec.json.schema(KINDS[kind]),
    }
