"""Small random programs, as source: inputs of all layouts, statements, a nested result.

A statement is drawn with the values at hand, and tried out; one that raises is dropped.
So every program runs, and a failure is shown as code that can be pasted into a test.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import linecache
import sys
import textwrap
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

Pair = collections.namedtuple("Pair", ("first", "second"))  # noqa: PYI024  # pytree knows it


@dataclasses.dataclass
class Record:
    """A result that users define themselves."""

    value: Any
    note: Any = None


DTYPES = ("float32", "float32", "float64", "bfloat16", "float16", "complex64", "int64", "bool")
SHAPES = ("(n, 3)", "(n, 4)", "(2, n, 3)", "(n,)", "(4,)", "()", "(0, 3)", "(n, 1)")
LAYOUTS = (
    "{x}",
    "{x}",
    "{x}.t()",
    "{x}.transpose(0, -1)",
    "{x}[::2]",
    "{x}[1:]",
    "{x}[..., :2]",
    "{x}.expand(2, *{x}.shape)",
    "{x}.unsqueeze(1)",
    "{x}.flatten()",
    "{x}.as_strided((2, 2), (1, 1))",
)
SECOND = ("{x}", "{x}[1:]", "{x}.view(-1)", "{x}.t()", "{x}.detach()", "{x}[:1]")
"""Second inputs that share the memory of the first."""

EXPRESSIONS = (
    "{a}.sin()",
    "{a} + {b}",
    "{a} * {b}",
    "{a} - 1",
    "{a} / 3",
    "{a} @ {b}",
    "{a} > {b}",
    "{a}.exp()",
    "{a}.abs().sqrt()",
    "torch.relu({a})",
    "torch.softmax({a}, -1)",
    "torch.where({a} > 0, {a}, {b})",
    "torch.cat([{a}, {b}])",
    "torch.stack([{a}, {a}], -1)",
    "{a}.sum()",
    "{a}.sum(0)",
    "{a}.mean(-1, keepdim=True)",
    "{a}.cumsum(-1)",
    "{a}.max(-1)",
    "{a}.argmax()",
    "{a}.sort(-1)",
    "{a}.view(-1)",
    "{a}.reshape(-1)",
    "{a}.t()",
    "{a}.transpose(0, 1)",
    "{a}[1:]",
    "{a}[:, 0]",
    "{a}[..., None]",
    "{a}.flip(0)",
    "{a}.expand(2, *{a}.shape)",
    "{a}.contiguous()",
    "{a}.clone()",
    "{a}.detach()",
    "{a}.unbind(0)",
    "{a}.chunk(2)",
    "{a}.to(torch.float64)",
    "{a}.to(torch.float32)",
    "{a}.bfloat16()",
    "{a}.to(torch.int64)",
    "{a}.real",
    "{a}.conj()",
    "torch.view_as_real({a})",
    "torch.zeros_like({a})",
    "torch.ones({a}.shape[-1], dtype={a}.dtype)",
    "{a}.new_full((2,), -0.0)",
    "{a}.nonzero()",
    "{a}.shape[0]",
    "{a}.numel() + 1",
    "float({a}.dim())",
    "str({a}.dtype)",
)
RANDOM = (
    "torch.rand_like({a})",
    "{a} + torch.randn({a}.shape, dtype={a}.dtype)",
    "nn.functional.dropout({a}, 0.5)",
    "torch.bernoulli(torch.full((3,), 0.5))",
    "torch.randint(0, 9, (3,))",
    "torch.randperm(4)",
    "torch.multinomial(torch.ones(5), 2)",
)
STATEMENTS = (
    "{a}.add_(1)",
    "{a}.mul_({b})",
    "{a}.copy_({b})",
    "{a}.relu_()",
    "{a}.zero_()",
    "{a}.t_()",
    "{a}.unsqueeze_(0)",
    "{a}.squeeze_()",
    "{a}.masked_fill_({a} > 0, 2)",
    "{a}.clamp_(min=0)",
    "{a}[0] = 1",
    "{a}[1:] = {b}[1:]",
    "{a}[..., -1] += 2",
    "{a}[{a} > 0] = 0",
    "{a}.bernoulli_(0.5)",
    "{a}.index_add_(0, torch.tensor([0]), {a}[:1])",
    "torch.add({a}, 1, out={a})",
)
LAYERS = (
    "nn.Linear({a}.shape[-1], 3, dtype={a}.dtype)",
    "nn.LayerNorm({a}.shape[-1], dtype={a}.dtype)",
    "nn.BatchNorm1d({a}.shape[1], dtype={a}.dtype)",
    "nn.Dropout(0.5)",
    "nn.PReLU(dtype={a}.dtype)",
    "nn.Sequential(nn.Linear({a}.shape[-1], 4, dtype={a}.dtype), nn.GELU())",
    "nn.Embedding(9, 3)",
)
STATE = (
    "self.count += 1",
    "self.total.add_(1)",
    "self.total = self.total + 1",
    "self.kept = {a}",
    "self.kept = [{a}, self.count]",
    "self.seen.append(self.count)",
    "self.seen.append({a})",
    "self.names['a'] = {a}",
    "v{i} = {a} * self.total",
    "v{i} = {a} * self.count",
    "v{i} = {a} + self.weight",
)
MEMBERS = (
    "self.count = 0",
    "self.seen = []",
    "self.names = {}",
    "self.kept = None",
    "self.weight = nn.Parameter(torch.ones(()))",
    "self.register_buffer('total', torch.zeros(1))",
)
RESULTS = (
    "{a}",
    "({a}, {b})",
    "[{a}, None, 3]",
    "{{'x': {a}, 'y': [{b}]}}",
    "Pair({a}, {b})",
    "Record({a}, ({b}, 'note'))",
    "({a}, {a})",
    "({a}, {b}, {c}, {d})",
    "({a}, 2.5, True)",
)
MODES = ("contextlib.nullcontext()",) * 4 + (
    "torch.no_grad()",
    "torch.inference_mode()",
    "torch.autocast('cpu', torch.bfloat16)",
)
NAMES: dict[str, Any] = {
    "torch": torch,
    "nn": nn,
    "contextlib": contextlib,
    "Pair": Pair,
    "Record": Record,
    "W": nn.Parameter(torch.ones(3, 2)),
}
_FILES = itertools.count()


@dataclasses.dataclass(frozen=True)
class Program:
    """One program: what to call, with what, and how often."""

    inputs: tuple[str, ...]
    statements: tuple[str, ...]
    result: str
    members: tuple[str, ...] = ()
    """Statements that make a module; none: the target is a function."""
    mode: str = "contextlib.nullcontext()"
    training: bool = True
    sizes: tuple[int, ...] = (3, 3)
    """The size ``n`` in each call."""

    def source(self) -> str:
        names = ", ".join(_letters(len(self.inputs)))
        body = "\n".join([*self.statements, f"return {self.result}"])
        if not self.members:
            return f"def target({names}):\n{textwrap.indent(body, '    ')}\n"
        made = textwrap.indent("\n".join(["super().__init__()", *self.members]), " " * 8)
        return (
            f"class Target(nn.Module):\n    def __init__(self):\n{made}\n"
            f"    def forward(self, {names}):\n{textwrap.indent(body, ' ' * 8)}\n"
        )

    def make(self) -> Callable[..., Any]:
        """Make the target anew, from the same state."""
        torch.manual_seed(1)
        name = f"random_program_{next(_FILES)}"
        file = f"<{name}>"
        # Whose globals these are is told by the module, as in a file of a user.
        module = sys.modules[name] = types.ModuleType(name)
        space = vars(module)
        space.update(NAMES, __file__=file)
        source = self.source()
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec"), space)  # noqa: S102  # what is under test
        if not self.members:
            return space["target"]  # type: ignore[no-any-return]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of layers without any elements
            return space["Target"]().train(self.training)  # type: ignore[no-any-return]

    def calls(self) -> list[tuple[Any, ...]]:
        """The arguments of all calls."""
        made = []
        for number, n in enumerate(self.sizes):
            torch.manual_seed(100 + number)
            space = {**NAMES, "n": n}
            for name, text in zip(_letters(len(self.inputs)), self.inputs, strict=True):
                space[name] = eval(text, space)  # noqa: S307
            made.append(tuple(space[name] for name in _letters(len(self.inputs))))
        return made

    def around(self) -> contextlib.AbstractContextManager[Any]:
        return eval(self.mode, dict(NAMES))  # type: ignore[no-any-return]  # noqa: S307

    def __repr__(self) -> str:
        inputs = "\n".join(
            f"{name} = {text}"
            for name, text in zip(_letters(len(self.inputs)), self.inputs, strict=True)
        )
        return (
            f"n in {self.sizes}, {self.mode}, training={self.training}\n{inputs}\n{self.source()}"
        )


def _letters(count: int) -> list[str]:
    return [f"x{i}" for i in range(count)]


def tensor_text(shape: str, dtype: str) -> str:
    if dtype == "bool":
        return f"(torch.randn({shape}) > 0)"
    if dtype == "int64":
        return f"torch.randint(-4, 5, {shape})"
    return f"torch.randn({shape}, dtype=torch.{dtype})"


class _Drawing:
    """A program under way: its values so far, by name."""

    def __init__(self, draw: Any, *, module: bool, mode: str, size: int) -> None:
        self.draw = draw
        self.mode = mode
        self.space: dict[str, Any] = {**NAMES, "n": size}
        self.members = list(MEMBERS) if module else []
        self.statements: list[str] = []
        # Whether a statement can be run, and so is drawn, may depend on the numbers it meets.
        torch.manual_seed(0)
        if module:
            self.space["self"] = nn.Module()
            for member in MEMBERS:
                self.run(member)

    def pick(self, texts: tuple[str, ...]) -> str:
        return str(self.draw(st.sampled_from(texts)))

    def tensors(self) -> list[str]:
        values = self.space.items()
        return [n for n, value in values if n[0] in "xv" and isinstance(value, torch.Tensor)]

    def tensor(self) -> str:
        # Those made last come first, so that programs are deep rather than wide.
        return str(self.draw(st.sampled_from(self.tensors()[::-1])))

    def run(self, line: str) -> bool:
        """Try a statement out; names that it made stay."""
        try:
            with warnings.catch_warnings(), eval(self.mode, dict(NAMES)):  # noqa: S307
                # Torch warns once; as an error, that would be drawn differently later on.
                warnings.simplefilter("ignore")
                exec(line, self.space)  # noqa: S102
        except Exception:  # noqa: BLE001  # torch refuses in many ways; then it is not drawn
            return False
        return True

    def statement(self, texts: tuple[str, ...]) -> None:
        line = self.pick(texts).format(a=self.tensor(), b=self.tensor(), i=len(self.statements))
        if self.run(line):
            self.statements.append(line)

    def expression(self, texts: tuple[str, ...]) -> None:
        name = f"v{len(self.statements)}"
        line = f"{name} = {self.pick(texts).format(a=self.tensor(), b=self.tensor())}"
        if not self.run(line):
            return
        self.statements.append(line)
        value = self.space[name]
        if isinstance(value, tuple | list):  # parts of it are values too
            for index in range(min(len(value), 2)):
                part = f"{name}_{index} = {name}[{index}]"
                self.run(part)
                self.statements.append(part)

    def layer(self) -> None:
        value = self.tensor()
        shown = (
            self.pick(LAYERS).replace("{a}.shape[-1]", "{last}").replace("{a}.shape[1]", "{one}")
        )
        tensor = self.space[value]
        sizes = {"last": tensor.shape[-1] if tensor.dim() else 0}
        sizes["one"] = tensor.shape[1] if tensor.dim() > 1 else 0
        member = f"self.layer{len(self.members)} = {shown}".replace("{a}.dtype", str(tensor.dtype))
        member = member.format(**sizes)
        line = f"v{len(self.statements)} = self.layer{len(self.members)}({value})"
        if self.run(member) and self.run(line):
            self.members.append(member)
            self.statements.append(line)


@st.composite
def programs(
    draw: Any, *, breaks: bool = True, first: str | None = None, last: str | None = None
) -> Program:
    """Draw a program; ``first`` is its first input, ``last`` a part of its result."""
    mode, module = draw(st.sampled_from(MODES)), draw(st.booleans())
    size = draw(st.sampled_from((2, 3, 5)))
    drawing = _Drawing(draw, module=module, mode=mode, size=size)
    inputs: list[str] = []
    if first is not None and drawing.run(f"x0 = {first}"):
        inputs.append(first)
    for _ in range(draw(st.integers(1, 3))):
        _input(drawing, inputs)
    for _ in range(draw(st.integers(1, 8))):
        _step(drawing, module=module, breaks=breaks)
    names = {letter: drawing.tensor() for letter in "abcd"}
    result = drawing.pick(RESULTS).format(**names)
    values = sorted(name for name in drawing.space if name.startswith("v"))
    if values and draw(st.booleans()):
        result = f"({result}, {draw(st.sampled_from(values))})"
    if last is not None and drawing.run(f"last = {last}"):
        drawing.statements.append(f"last = {last}")
        result = f"({result}, last)"
    program = Program(
        inputs=tuple(inputs),
        members=tuple(drawing.members),
        statements=tuple(drawing.statements),
        result=result,
        mode=mode,
        training=draw(st.booleans()),
        sizes=draw(st.sampled_from(((size,), (size, size), (size, size + 2)))),
    )
    try:
        program.calls()
    except RuntimeError:  # a view that the inputs of another size don't allow
        return dataclasses.replace(program, sizes=(size,))
    return program


def _input(drawing: _Drawing, inputs: list[str]) -> None:
    name = f"x{len(inputs)}"
    draw = drawing.draw
    text = tensor_text(drawing.pick(SHAPES), drawing.pick(DTYPES))
    if draw(st.booleans()):
        text += ".requires_grad_()"
        if draw(st.booleans()):
            text = f"({text} * 1)"
    text = drawing.pick(LAYOUTS).format(x=text)
    if inputs and draw(st.integers(0, 3)) == 0:
        text = drawing.pick(SECOND).format(x="x0")
    # Arguments are made outside of the mode, as tests make them.
    mode, drawing.mode = drawing.mode, MODES[0]
    if not drawing.run(f"{name} = {text}"):
        text = "torch.randn(n, 3)"
        drawing.run(f"{name} = {text}")
    drawing.mode = mode
    inputs.append(text)


def _step(drawing: _Drawing, *, module: bool, breaks: bool) -> None:
    kinds = ["expression"] * 6 + ["statement"] * 3 + ["random"]
    kinds += ["layer"] * 3 + ["state"] * 2 if module else []
    kinds += ["break"] if breaks and drawing.draw(st.integers(0, 3)) == 0 else []
    kind = drawing.draw(st.sampled_from(kinds))
    if kind == "layer":
        drawing.layer()
    elif kind == "break":
        drawing.statements.append("torch._dynamo.graph_break()")
    elif kind in ("statement", "state"):
        drawing.statement(STATEMENTS if kind == "statement" else STATE)
    else:
        drawing.expression(EXPRESSIONS if kind == "expression" else RANDOM)
