"""Makes the README's tables from the code, so that they can't tell something else."""

from __future__ import annotations

import argparse
import ast
import inspect
from pathlib import Path
from types import ModuleType

from pytest_compileguard import metrics, spec
from pytest_compileguard.cli import SUBCOMMANDS
from pytest_compileguard.option_list import OPTIONS
from pytest_compileguard.options import Options
from pytest_compileguard.plan import CompileArguments, Plan, make_plan


def tables() -> dict[str, str]:
    """Markdown of each generated table, by the name of its section in the README."""
    return {
        "limits": limits(),
        "options": options(),
        "metrics": metric_table(),
        "commands": commands(),
    }


def limits() -> str:
    plan = make_plan(spec.CompileCheck(), Options(), nodeid="", name="")
    rows = [
        f"| `{name}` | {_default(plan, name)} | {text} |"
        for name, text in _field_docs(spec.CompileCheck).items()
    ]
    return "\n".join(["| argument | default | meaning |", "| --- | --- | --- |", *rows])


def _default(plan: Plan, name: str) -> str:
    if name in CompileArguments.__struct_fields__:
        return f"{plan.arguments.backend_name}" if name == "backend" else "torch's"
    value = getattr(plan, name, ())  # modes make plans, and are in none
    if isinstance(value, str):
        return f'`"{value}"`'
    if name.startswith(("max_", "min_")) and value is None:
        return "no limit"
    if value is None:
        return "none" if name == "setup" else "by dtype"
    return "none" if value == () else f"{value:g}"


def options() -> str:
    rows = []
    for option in OPTIONS:
        usage = option.usage.replace("|", "\\|")
        ini = f"`{option.dest}`" if option.ini else "-"
        rows.append(f"| `{usage}` | {ini} | {option.help} |")
    return "\n".join(["| option | ini key | meaning |", "| --- | --- | --- |", *rows])


def commands() -> str:
    rows = [f"| `{_usage(name, module)}` | {module.HELP} |" for name, module in SUBCOMMANDS.items()]
    return "\n".join(["| command | what it does |", "| --- | --- |", *rows])


def _usage(name: str, module: ModuleType) -> str:
    parser = argparse.ArgumentParser(prog=f"compileguard {name}", add_help=False)
    module.add_arguments(parser)
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    return usage.replace("|", "\\|")


def metric_table() -> str:
    policies = {"gate": "fails", "warn": "warns", "show": "is told"}
    rows = [
        f"| {m.label} | {m.better} | {_tolerance(m)} | {policies[m.policy]} | {m.meaning} |"
        for m in metrics.TABLE
    ]
    head = "| number | better | tolerance | worse than the baseline | meaning |"
    return "\n".join([head, "| --- | --- | --- | --- | --- |", *rows])


def _tolerance(metric: metrics.Metric) -> str:
    return f"{100 * metric.tolerance:g} % (noise threshold)" if metric.tolerance else "none"


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


def main() -> None:
    """Make the tables of the README anew: ``python -m tests.readme_tables``."""
    file = Path(__file__).parents[1] / "README.md"
    text = file.read_text(encoding="utf-8")
    for name, table in tables().items():
        start = text.index(f"<!-- table: {name} -->\n") + len(f"<!-- table: {name} -->\n")
        end = text.index("\n<!-- end -->", start)
        text = text[:start] + table + text[end:]
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
