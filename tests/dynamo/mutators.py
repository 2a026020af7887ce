"""Wrong backends: each changes one thing that a user of the compiled code would see.

A mutator is given what a graph returns, and what went into it; it gives back what the
wrong code returns, or ``None`` where there is nothing to change.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

Outputs = list[Any]
Mutator = Callable[[Outputs, tuple[Any, ...]], Outputs | None]
Change = Callable[[torch.Tensor], torch.Tensor]
MUTATORS: dict[str, Mutator] = {}
GRAPH_MUTATORS: dict[str, Callable[[torch.fx.GraphModule], None]] = {}


class Wrong:
    """A backend that runs the graph as it is, but for one mutator."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.applied = False

    def __call__(self, graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        if self._name in GRAPH_MUTATORS:
            return self._edited(graph)
        mutate = make() if (make := STATEFUL.get(self._name)) else MUTATORS[self._name]

        def run(*args: Any) -> Any:
            outputs = list(graph(*args))
            changed = mutate(outputs, args)
            self.applied |= changed is not None
            return outputs if changed is None else changed

        return run

    def _edited(self, graph: torch.fx.GraphModule) -> Callable[..., Any]:
        right, wrong = graph, torch.fx.GraphModule(graph, _copy_of(graph.graph))
        GRAPH_MUTATORS[self._name](wrong)
        wrong.graph.lint()
        wrong.recompile()

        def run(*args: Any) -> Any:
            self.applied |= _effect(right, args) != _effect(wrong, args)
            return wrong(*args)

        return run


def _copy_of(graph: torch.fx.Graph) -> torch.fx.Graph:
    copied = torch.fx.Graph()
    output = copied.graph_copy(graph, {})
    copied.output(output)
    return copied


def _effect(graph: torch.fx.GraphModule, args: tuple[Any, ...]) -> str:
    """What a graph returns and leaves, without touching the arguments."""
    with torch.no_grad(), torch.random.fork_rng():
        own = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args]
        found = [*graph(*own), *own]
    return repr([_digits(v) if isinstance(v, torch.Tensor) else v for v in found])


def _digits(tensor: torch.Tensor) -> Any:
    plain = tensor.detach().resolve_conj()
    return [list(plain.shape), plain.tolist()]


def mutator(name: str) -> Callable[[Mutator], Mutator]:
    def keep(function: Mutator) -> Mutator:
        MUTATORS[name] = function
        return function

    return keep


def tensors(outputs: Sequence[Any]) -> list[int]:
    return [i for i, value in enumerate(outputs) if isinstance(value, torch.Tensor)]


def changing(name: str, applies: Callable[[torch.Tensor], bool], change: Change) -> None:
    """A mutator that changes the first tensor to which it applies."""

    def mutate(outputs: Outputs, _args: tuple[Any, ...]) -> Outputs | None:
        for index in tensors(outputs):
            if outputs[index].numel() and applies(outputs[index]):
                return [*outputs[:index], change(outputs[index]), *outputs[index + 1 :]]
        return None

    MUTATORS[name] = mutate


def inexact(t: torch.Tensor) -> bool:
    return t.dtype.is_floating_point or t.dtype.is_complex


def loud(t: torch.Tensor) -> bool:
    """Whether it holds numbers whose change is more than rounding."""
    plain = t.detach()
    return inexact(t) and bool((plain.isfinite() & (plain.abs() > 0.01)).any())


def whole(t: torch.Tensor) -> bool:
    return t.dtype == torch.int64


def several(t: torch.Tensor) -> bool:
    """Whether two dimensions have strides that can be seen."""
    return sum(n > 1 for n in t.shape) > 1 and t.is_contiguous()


def one_element(t: torch.Tensor, value: Any) -> torch.Tensor:
    """Change the first finite element."""
    flat = t.reshape(-1)
    at = int(flat.detach().isfinite().to(torch.uint8).argmax())
    changed = torch.where(
        torch.arange(len(flat)) == at, torch.as_tensor(value, dtype=t.dtype), flat
    )
    return changed.reshape(t.shape)


def other_strides(t: torch.Tensor) -> torch.Tensor:
    turned = t.permute(*reversed(range(t.dim())))
    return turned.contiguous().permute(*reversed(range(t.dim())))


def rolled_is_other(t: torch.Tensor) -> bool:
    plain = t.detach()
    other = (plain != plain.roll(1)) & plain.isfinite()
    return bool(other.any()) and (
        not inexact(t) or float((plain - plain.roll(1)).abs().max()) > 0.1
    )


def finite(t: torch.Tensor) -> bool:
    return inexact(t) and bool(t.detach().isfinite().any())


changing("scaled", loud, lambda t: t * 1.5)
changing("scaled a little", lambda t: t.dtype == torch.float32 and loud(t), lambda t: t * 1.001)
changing("negated", loud, lambda t: -t)
changing("zeroed", loud, lambda t: t * 0)
changing("shifted", finite, lambda t: t + 1)
changing("one NaN", finite, lambda t: one_element(t, float("nan")))
changing("one infinity", finite, lambda t: one_element(t, float("inf")))
changing("one element off", finite, lambda t: one_element(t, 7.0))
changing(
    "NaN becomes a number",
    lambda t: inexact(t) and bool(t.detach().isnan().any()),
    lambda t: torch.where(t.isnan(), torch.zeros_like(t), t),
)
changing(
    "infinity becomes the greatest number",
    lambda t: t.dtype.is_floating_point and bool(t.detach().isinf().any()),
    lambda t: t.clamp(torch.finfo(t.dtype).min, torch.finfo(t.dtype).max),
)
changing("wrong stride", several, other_strides)
changing(
    "wrong floating dtype",
    lambda t: t.dtype in (torch.float32, torch.bfloat16, torch.float16),
    lambda t: t.double(),
)
changing("wrong integer dtype", whole, lambda t: t.to(torch.int32))
changing("wrong shape", lambda _: True, lambda t: t[None])
changing("broadcastable shape", lambda t: t.dim() > 0 and t.shape[0] > 1, lambda t: t[:1])
changing("a row too few", lambda t: t.dim() > 0 and t.shape[0] > 1, lambda t: t[1:])
changing("rolled by one", rolled_is_other, lambda t: t.roll(1))
changing("integer off by one", whole, lambda t: t + 1)
changing("truth flipped", lambda t: t.dtype == torch.bool, lambda t: ~t)
changing(
    "conjugated",
    lambda t: t.dtype.is_complex and bool((t.detach().imag.abs() > 0.01).any()),
    lambda t: t.conj(),
)
changing("wrong layout", lambda t: inexact(t) and t.dim() > 0, lambda t: t.to_sparse())
changing("wrong device", lambda _: True, lambda t: t.to("meta"))
changing("requires_grad lost", lambda t: t.requires_grad, lambda t: t.detach())
changing(
    "requires_grad gained",
    lambda t: (
        inexact(t)
        and not t.requires_grad
        and not t.is_inference()
        and torch.is_grad_enabled()
        and t._base is None  # an alias of an input would make that require one
    ),
    lambda t: t.clone().requires_grad_(),
)
changing("a subclass", lambda t: inexact(t) and not t.requires_grad, nn.Parameter)


@mutator("swapped outputs")
def _swapped(outputs: Outputs, _args: tuple[Any, ...]) -> Outputs | None:
    for i in tensors(outputs):
        for j in tensors(outputs)[i + 1 :]:
            a, b = outputs[i], outputs[j]
            if a.shape == b.shape and a.dtype == b.dtype and _far(a, b):
                changed = list(outputs)
                changed[i], changed[j] = b, a
                return changed
    return None


def _far(a: torch.Tensor, b: torch.Tensor) -> bool:
    plain = [torch.nan_to_num(t.detach().to(torch.complex128)) for t in (a, b)]
    return a.numel() > 0 and float((plain[0] - plain[1]).abs().max()) > 0.1


def _keys(values: Sequence[Any]) -> dict[int, int]:
    found = (v for v in values if isinstance(v, torch.Tensor) and v.numel())
    return {v.untyped_storage()._cdata: i for i, v in enumerate(found)}


@mutator("cut alias")
def _cut(outputs: Outputs, args: tuple[Any, ...]) -> Outputs | None:
    taken = _keys([a for a in args if not isinstance(a, nn.Parameter)])
    for index in tensors(outputs):
        t = outputs[index]
        if t.numel() and t.untyped_storage()._cdata in taken:
            # As a view, so that the strides are those of the original.
            copied = t.clone(memory_format=torch.preserve_format)
            return [*outputs[:index], copied, *outputs[index + 1 :]]
    return None


@mutator("added alias")
def _added(outputs: Outputs, args: tuple[Any, ...]) -> Outputs | None:
    for i in tensors(outputs):
        for j in tensors(outputs)[i + 1 :]:
            a, b = outputs[i], outputs[j]
            apart = len(_keys([a, b])) == 2 and not set(_keys([a, b])) & set(_keys(args))
            if apart and a.shape == b.shape and a.dtype == b.dtype:
                changed = list(outputs)
                changed[i], changed[j] = torch.stack([a, b]).unbind()
                return changed
    return None


@mutator("added random step")
def _random(outputs: Outputs, _args: tuple[Any, ...]) -> Outputs:
    torch.rand(1)
    return outputs


@mutator("argument written to")
def _written(outputs: Outputs, args: tuple[Any, ...]) -> Outputs | None:
    for value in args:
        plain = isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter)
        if plain and finite(value) and value.is_contiguous() and not value.requires_grad:
            value.add_(1)
            return outputs
    return None


@mutator("parameter written to")
def _overwritten(outputs: Outputs, args: tuple[Any, ...]) -> Outputs | None:
    for value in args:
        if isinstance(value, nn.Parameter) and bool(value.detach().any()):
            value.data.mul_(1.5)
            return outputs
    return None


def _stale() -> Mutator:
    """What the first call gave is given in all later ones."""
    first: list[Outputs] = []

    def mutate(outputs: Outputs, _args: tuple[Any, ...]) -> Outputs | None:
        if not first:
            first.append(
                [o.detach().clone() if isinstance(o, torch.Tensor) else o for o in outputs]
            )
            return None
        for index in tensors(outputs):
            old, new = first[0][index], outputs[index]
            if old.shape == new.shape and not new.requires_grad and _far(old, new):
                return [*outputs[:index], old, *outputs[index + 1 :]]
        return None

    return mutate


STATEFUL: dict[str, Callable[[], Mutator]] = {"stale output": _stale}


class Altered(torch.autograd.Function):
    """Identity whose gradients are altered."""

    @staticmethod
    def forward(ctx: Any, alter: Callable[..., Any], *values: torch.Tensor) -> Any:
        ctx.alter = alter
        return tuple(v.view_as(v) for v in values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, *ctx.alter(*gradients))


def differentiating(name: str, alter: Callable[..., Sequence[Any]], *, count: int = 1) -> None:
    """A mutator of the gradients of the first outputs of one shape that have any."""

    def mutate(outputs: Outputs, args: tuple[Any, ...]) -> Outputs | None:
        for group in _groups(outputs, count):
            changed = list(outputs)
            altered = Altered.apply(alter, *(outputs[i] for i in group))  # type: ignore[no-untyped-call]
            for index, value in zip(group, altered, strict=True):
                changed[index] = value
            if _gradients(outputs, args, group) != _gradients(changed, args, group):
                return changed
        return None

    MUTATORS[name] = mutate


def _groups(outputs: Outputs, count: int) -> list[list[int]]:
    found: dict[Any, list[int]] = {}
    for i in tensors(outputs):
        t = outputs[i]
        views = t._base is not None  # several views of one tensor can't be outputs
        if t.requires_grad and t.grad_fn is not None and t.numel() and not views:
            found.setdefault((t.shape, t.dtype), []).append(i)
    return [group[:count] for group in found.values() if len(group) >= count]


def _gradients(outputs: Outputs, args: tuple[Any, ...], group: list[int]) -> Any:
    ends = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    if not ends:
        return None
    starts = [outputs[i] for i in group]
    random = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=random).to(t.dtype) for t in starts]
    try:
        found = torch.autograd.grad(starts, ends, weights, retain_graph=True, allow_unused=True)
    except RuntimeError:
        return None
    return [_rounded(_summed(end, g)) for end, g in zip(ends, found, strict=True)]


def _summed(end: torch.Tensor, gradient: torch.Tensor | None) -> torch.Tensor | None:
    """What reaches the leaf of a view in which elements share memory: their sum."""
    if gradient is None or end.is_leaf or not end.numel():
        return gradient
    places = torch.zeros(1, dtype=torch.int64)
    for stride, size in zip(end.stride(), end.size(), strict=True):
        places = places[..., None] + stride * torch.arange(size)
    memory = gradient.new_zeros(int(places.max()) + 1)
    return memory.index_add(0, places.flatten(), gradient.flatten())


def _rounded(gradient: torch.Tensor | None) -> Any:
    if gradient is None:
        return None
    plain = torch.nan_to_num(gradient.detach().to(torch.complex128).resolve_conj())
    rounded = torch.view_as_real(plain).mul(10).round()
    # Added to that of another output, what is nothing, or next to it, is not seen.
    return rounded.tolist() if bool(rounded.any()) else None


differentiating("gradient scaled", lambda g: [g * 7])
differentiating("gradient None", lambda _g: [None])
differentiating("gradient zero", lambda g: [g * 0])
differentiating("gradient of the wrong sign", lambda g: [-g])
differentiating(
    "gradient transposed",
    lambda g: [g.flip(0) if g.dim() else g],
)
differentiating("gradients swapped", lambda a, b: [b, a], count=2)
differentiating("one gradient NaN", lambda g: [one_element(g, float("nan"))])


def _in_place(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    def writes(node: torch.fx.Node) -> bool:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        ends = name.endswith("_") and not name.endswith("__") and node.op == "call_method"
        return ends or node.target is operator.setitem

    return [node for node in graph.graph.nodes if writes(node)]


def _dropped(graph: torch.fx.GraphModule) -> None:
    for node in _in_place(graph)[:1]:
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        graph.graph.erase_node(node)


def _doubled(graph: torch.fx.GraphModule) -> None:
    for node in _in_place(graph)[:1]:
        with graph.graph.inserting_after(node):
            graph.graph.node_copy(node)


GRAPH_MUTATORS |= {"dropped mutation": _dropped, "double mutation": _doubled}


class LosesRandomStep(Wrong):
    """Gives right numbers, but leaves the generator as it found it."""

    def __call__(self, graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            before = torch.get_rng_state()
            outputs = graph(*args)
            self.applied |= not torch.equal(before, torch.get_rng_state())
            torch.set_rng_state(before)
            return outputs

        return run


# How the compiled branch of a program changes what it returns.
RESULTS: dict[str, Callable[[str], str]] = {
    "extra output": lambda text: f"({text}, 1)",
    "list for tuple": lambda text: f"[{text}]",
    "None for the output": lambda _text: "None",
    "wrapped in a dictionary": lambda text: f"{{'x': {text}}}",
}
# What a program needs so that a mutator applies: a first input, and a last part of its result.
LEAF = "torch.randn(n, 3, requires_grad=True)"
GRADIENT = (LEAF, "torch.sin(x0) * 3 + x0 * 2")
FEATURES: dict[str, tuple[str | None, str]] = {
    **dict.fromkeys([name for name in MUTATORS if "gradient" in name], GRADIENT),
    "gradients swapped": (LEAF, "(torch.sin(x0) * 3, x0 * x0 + x0)"),
    "requires_grad lost": GRADIENT,
    "requires_grad gained": ("torch.randn(n, 3)", "torch.sin(x0)"),
    "NaN becomes a number": ("torch.randn(n, 3)", "x0.sum() * float('nan')"),
    "infinity becomes the greatest number": ("torch.randn(n, 3)", "x0.sum().abs() / 0"),
    "wrong stride": (None, "torch.ones(3, 4) * 2"),
    "wrong floating dtype": (None, "torch.ones(3) * 2"),
    "wrong integer dtype": (None, "torch.arange(3) * 2"),
    "integer off by one": (None, "torch.arange(300, 310) * 2"),
    "truth flipped": (None, "torch.arange(3) > 1"),
    "conjugated": (None, "torch.arange(3) * 2j"),
    "swapped outputs": ("torch.randn(n, 3)", "(x0.sin(), x0 * 3)"),
    "cut alias": ("torch.randn(n, 3)", "x0.view(-1)"),
    "added alias": ("torch.randn(n, 3)", "(x0 * 2, x0 * 3)"),
    "parameter written to": (None, "nn.functional.linear(torch.ones(2), W)"),
    "stale output": ("torch.randn(n, 3)", "x0.double().sum()"),
    "dropped mutation": ("torch.randn(n, 3)", "x0.add_(1)"),
    "double mutation": ("torch.randn(n, 3)", "x0.add_(1)"),
    "lost random step": (None, "torch.rand(3)"),
}
NAMES = (
    *MUTATORS,
    *STATEFUL,
    *GRAPH_MUTATORS,
    *RESULTS,
    "lost random step",
)


def backend(name: str) -> Wrong:
    return LosesRandomStep(name) if name == "lost random step" else Wrong(name)
