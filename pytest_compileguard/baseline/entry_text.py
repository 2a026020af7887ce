"""The JSON that the files of a baseline stand in. Pure: bytes and values, no files.

The text is what ``json.dumps(..., indent=2, sort_keys=True)`` gives, the form that formatters of
JSON in commit hooks agree on, so that they and this plugin don't rewrite each other's files.
A file of an older schema is read as if it were of this one, and rewritten when it changes.

Entries resemble each other, so git may merge lines of one into another without a conflict, and
every number in them would still be a number. So each entry has a seal, a digest of its check and
its values: what was mixed up, or edited by hand, is refused instead of compared with.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from pytest_compileguard.baseline.entries import (
    SCHEMA,
    F,
    FactsColumn,
    FactsEntry,
    FactsFile,
    TimingColumn,
    TimingEntry,
    TimingsFile,
    printable,
)

MAX_BYTES = 20_000_000
"""More than any test module can need; a greater file is something else."""

_CONFLICT = re.compile(rb"^(<{7}|\|{7}|={7}|>{7})( .*)?\r?$", re.MULTILINE)
_SHOWN_CHARACTERS = 100
_SEAL_LENGTH = 12
_FIRST_SEALED = 2
_ADDED = {2: {"seal", "inputs"}, 3: {"code"}}
"""The fields of entries that a schema added: an entry of an older one has none of them."""
_MIXED_UP = "edited by hand, or mixed up by a merge of git (which compileguard merge mends)"
_UNFINISHED = "of an unfinished merge"


class DamagedError(ValueError):
    """A text is no file of a baseline: the place in it, and what is wrong there."""


_ROWS: dict[type, Any] = {
    FactsFile: dict[FactsColumn, FactsEntry],
    TimingsFile: dict[TimingColumn, TimingEntry],
}


def encode(file: FactsFile | TimingsFile) -> bytes:
    """Write a file as text that ``decode`` reads back as the same value.

    Raises:
        DamagedError: It holds what a baseline can't hold, such as NaN.
    """
    raw = msgspec.to_builtins(file)
    for key, column, entry in _entries_of(raw):
        entry["seal"] = _seal(key, column, entry)
    # As ``json.dumps(raw, indent=2, sort_keys=True)``, which takes ten times as long.
    text = json.dumps(raw, sort_keys=True).encode("ascii")
    try:
        data = msgspec.json.format(text, indent=2) + b"\n"
    except msgspec.DecodeError:  # NaN, for instance
        data = text
    kind: type[Any] = type(file)
    if len(data) > MAX_BYTES or b"\\ud" in data or not _is_valid(raw, kind):
        decode(data, kind)  # says what is wrong, if anything is
    return data


def _is_valid(raw: Any, kind: type[Any]) -> bool:
    try:
        msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        return False
    return True


def decode(data: bytes, file_type: type[F]) -> F:
    """Read a file, strictly.

    Raises:
        DamagedError: It is damaged, too great, of another kind or of a newer schema.
    """
    if len(data) > MAX_BYTES:
        raise DamagedError(f"more than {MAX_BYTES // 1_000_000} MB; a baseline is far smaller")
    file: F = _decoded(data, file_type)
    return file


@lru_cache(maxsize=8)
def _decoded(data: bytes, file_type: type[Any]) -> Any:
    """Read a text once, though each check of a module asks for the same file."""
    try:
        file = _of_any_schema(data, file_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # the latter up to msgspec 0.22
        raise DamagedError(printable(_explain(data, file_type, error))) from error
    raw = json.loads(data)
    if not _is_plain(data, raw) and (
        twin := _duplicate(json.loads(data, object_pairs_hook=_Pairs), ())
    ):
        # Each of two equal keys may be the wanted one; JSON readers silently take the last.
        raise DamagedError(f"{_json_path(twin)}: this key stands there twice")
    for key, column, entry in _entries_of(raw):
        if not _is_as_recorded(raw["schema"], key, column, entry):
            where = _json_path(("entries", key, column))
            raise DamagedError(f"{where}: is not as it was recorded: {_MIXED_UP}")
    return _unsealed(file)


def _is_as_recorded(schema: int, key: str, column: str, entry: Mapping[str, Any]) -> bool:
    """Compare with the seal, which schema 1 had not; nothing in it is of a later schema."""
    if any(entry.keys() & names for added, names in _ADDED.items() if added > schema):
        return False
    return schema < _FIRST_SEALED or bool(entry.get("seal") == _seal(key, column, entry))


def _is_plain(data: bytes, raw: Any) -> bool:
    """Whether the values, written again, give the same text: then no key stands there twice.

    Tried first, as looking for such a key takes long.
    """
    again = json.dumps(raw, separators=(",", ":")).encode("ascii")
    return again == msgspec.json.format(data, indent=-1)


def _entries_of(raw: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for key, columns in raw["entries"].items():
        for column, entry in columns.items():
            yield key, column, entry


def _seal(key: str, column: str, entry: Mapping[str, Any]) -> str:
    values = {name: value for name, value in entry.items() if name != "seal"}
    text = msgspec.json.encode([key, column, values], order="sorted")
    return hashlib.sha256(text).hexdigest()[:_SEAL_LENGTH]


def _unsealed(file: Any) -> Any:
    """Drop the seals: they are of the text, and two equal results are equal without them."""
    entries = {
        key: {c: msgspec.structs.replace(entry, seal=None) for c, entry in columns.items()}
        for key, columns in file.entries.items()
    }
    return msgspec.structs.replace(file, entries=entries)


def _of_any_schema(data: bytes, file_type: type[Any]) -> Any:
    try:
        return msgspec.json.decode(data, type=file_type)
    except msgspec.ValidationError:
        older = _migrated(data)
        if older is None:
            raise
        return msgspec.convert(older, file_type)


def _migrated(data: bytes) -> Mapping[str, Any] | None:
    """Bring a text of an older schema up to this one; ``None`` if it is of no older one."""
    schema = schema_of(data)
    if schema not in MIGRATIONS:
        return None
    raw: dict[str, Any] = msgspec.json.decode(data)
    for older in range(schema, SCHEMA):
        raw = {**MIGRATIONS[older](raw), "schema": older + 1}
    return raw


def _unchanged(raw: dict[str, Any]) -> dict[str, Any]:
    """Schema 2 added inputs, limits and commit, 3 digests of code: of older entries unknown."""
    return raw


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _unchanged, 2: _unchanged}
"""For each older schema, what makes the next one of it."""


def schema_of(data: bytes) -> int | None:
    """Read the schema that a text says it is of; ``None`` if it says none."""
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    schema = raw.get("schema") if isinstance(raw, dict) else None
    return schema if type(schema) is int else None


def _explain(data: bytes, file_type: type, error: Exception) -> str:
    if flaw := _flaw_of_text(data):
        return flaw
    if isinstance(error, msgspec.ValidationError):
        return _explain_value(data, file_type, error)
    if "truncated" in str(error):
        return f"{_line(data, len(data.rstrip()))}: the text ends too early (truncated)"
    what, _, position = str(error).partition(" (byte ")
    digits = position.rstrip(")")
    return f"{_line(data, int(digits))}: {what}" if digits.isdigit() else what


def _flaw_of_text(data: bytes) -> str | None:
    """Find what is wrong with a text before it is looked at as JSON."""
    if not data.strip():
        return "the file is empty"
    if data.startswith(codecs.BOM_UTF8):
        return "line 1: begins with a byte order mark; save it as UTF-8 without one"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as wrong:
        return f"{_line(data, wrong.start)}: not UTF-8 (byte 0x{data[wrong.start]:02x})"
    if conflict := _CONFLICT.search(data):
        marker = _shortened(conflict.group().decode().rstrip())
        return f"{_line(data, conflict.start())}: conflict marker {marker!r} {_UNFINISHED}"
    return None


def is_conflict(error: DamagedError) -> bool:
    """Whether a file is what a merge left unfinished."""
    return str(error).endswith(_UNFINISHED)


def _explain_value(data: bytes, file_type: type, error: msgspec.ValidationError) -> str:
    """Say where a value of the wrong type stands; msgspec leaves out the keys of mappings."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict):
        return _worded((), error)
    schema = raw.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        reads = f"this one reads schema {SCHEMA}"
        return f"$.schema: {schema}: written by a newer pytest-compileguard, {reads}; update it"
    for keys, row in _rows(raw.get("entries")):
        if inner := _flaw_of_row(row, file_type):
            return _worded(keys, inner)
    return _worded((), error)


def _flaw_of_row(row: Any, file_type: type) -> msgspec.ValidationError | None:
    try:
        msgspec.convert(row, _ROWS[file_type])
    except msgspec.ValidationError as error:
        return error
    return None


def _rows(entries: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Cut the table into rows of one entry each, and what is no row as it is."""
    rows: list[tuple[tuple[str, ...], Any]] = []
    for key, columns in entries.items() if isinstance(entries, dict) else ():
        if isinstance(columns, dict):
            rows += [(("entries", key, name), {name: entry}) for name, entry in columns.items()]
        else:
            rows.append((("entries", key), columns))
    return rows


def _worded(keys: tuple[str, ...], error: msgspec.ValidationError) -> str:
    what, _, place = str(error).rpartition(" - at ")
    what, place = (what, place) if what else (place, "")
    if "`key`" in place:
        what, place = f"wrong key: {what}", ""
    rest = place.strip("`").removeprefix("$")
    return f"{_json_path(keys)}{rest.removeprefix('[...]') if keys else rest}: {_shortened(what)}"


def _json_path(keys: tuple[str, ...]) -> str:
    shown = [_shortened(key) for key in keys]
    return "$" + "".join(f".{k}" if k.isidentifier() else f"[{json.dumps(k)}]" for k in shown)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _line(data: bytes, position: int) -> str:
    number = data.count(b"\n", 0, position) + 1
    return f"line {number}"


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its keys, equal ones too."""


def _duplicate(value: Any, keys: tuple[str, ...]) -> tuple[str, ...] | None:
    """Find the first key that stands twice in its object."""
    seen: set[str] = set()
    for key, inner in value if isinstance(value, _Pairs) else ():
        here = (*keys, key)
        if key in seen:
            return here
        seen.add(key)
        if found := _duplicate(inner, here):
            return found
    return None
