"""Makes the README's tables from the code, so that they can't tell something else."""

from __future__ import annotations

import ast
import inspect

from pytest_compileguard import metrics, spec
from pytest_compileguard.options import OPTIONS


def tables() -> dict[str, str]:
    """Markdown of each generated table, by the name of its section in the README."""
    return {"limits": limits(), "options": options(), "metrics": metric_table()}


def limits() -> str:
    rows = [f"| `{name}` | {text} |" for name, text in _field_docs(spec.CompileCheck).items()]
    return "\n".join(["| argument | meaning |", "| --- | --- |", *rows])


def options() -> str:
    rows = []
    for option in OPTIONS:
        flag = f"{option.flag} {option.metavar}" if option.metavar else option.flag
        ini = f"`{option.dest}`" if option.ini else "-"
        rows.append(f"| `{flag}` | {ini} | {option.help} |")
    return "\n".join(["| option | ini key | meaning |", "| --- | --- | --- |", *rows])


def metric_table() -> str:
    policies = {"gate": "fails", "show": "is shown"}
    rows = [
        f"| {m.label} | {m.better} | {policies[m.policy]} | {m.meaning} |"
        for m in (*metrics.FACTS, metrics.SPEEDUP)
    ]
    head = "| number | better | worse than the baseline | meaning |"
    return "\n".join([head, "| --- | --- | --- | --- |", *rows])


def _field_docs(record: type) -> dict[str, str]:
    """The docstrings below the fields of a record."""
    body = ast.parse(inspect.getsource(record)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, doc in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
            assert isinstance(field.target, ast.Name)
            assert isinstance(doc.value, ast.Constant)
            found[field.target.id] = str(doc.value.value).replace("``", "`")
    return found
