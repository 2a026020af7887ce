"""Wrong backends, each of which changes what a user would see, are all caught."""

from __future__ import annotations

import pytest

from tests.conftest import RunSuite

LIBRARY = """
import torch
from torch import nn

def outputs(change):
    '''A backend that changes the outputs of the graph.'''
    return lambda gm, inputs: lambda *args: change(list(gm(*args)))

class Sevenfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 7

def without(name):
    '''A backend that leaves one operator out.'''
    def backend(gm, inputs):
        for node in gm.graph.nodes:
            if name in str(node.target) or node.target == name:
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
        gm.recompile()
        return gm.forward
    return backend

class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, x):
        k = x.sum(0)
        self.kept = (k, k + 1)
        return x.sin()

class Rebinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total += x.sum(0)
        return x.sin()

def overwrites(gm, inputs):
    def run(*args):
        out = gm(*args)
        for value in args:
            if isinstance(value, nn.Parameter):
                value.data.mul_(1.5)
        return out
    return run

MASK = torch.ones(8, 8, dtype=torch.bool).triu(1)

def masked(q, k):
    return (q @ k.t()).masked_fill(MASK, -1e9)
"""

# Target, backend, arguments: as written in the test.
MUTATORS = {
    "scaled": ("lambda x: x.sin()", "outputs(lambda o: [o[0] * 1.001])", "randn(4)"),
    "one NaN": (
        "lambda x: x.sin()",
        "outputs(lambda o: [o[0].index_fill(0, torch.tensor([1]), float('nan'))])",
        "randn(4)",
    ),
    "one element off": (
        "lambda x: x.sin()",
        "outputs(lambda o: [o[0] + torch.eye(1, 400)[0]])",
        "randn(400)",
    ),
    "wrong stride": (
        "lambda x: x.sin()",
        "outputs(lambda o: [o[0].t().contiguous().t()])",
        "randn(3, 4)",
    ),
    "wrong dtype": ("lambda x: x.sin()", "outputs(lambda o: [o[0].double()])", "randn(4)"),
    "wrong shape": ("lambda x: x.sin()", "outputs(lambda o: [o[0][None]])", "randn(4)"),
    "swapped": ("lambda x: (x + 1, x + 2)", "outputs(lambda o: [o[1], o[0]])", "randn(4)"),
    "off-by-one slice": ("lambda x: x[1:] * 1", "outputs(lambda o: [o[0].roll(1)])", "randn(4)"),
    "truth flipped": ("lambda x: x > 0", "outputs(lambda o: [~o[0]])", "randn(4)"),
    "index off by one": (
        "lambda x: x.argmax(-1)",
        "outputs(lambda o: [o[0] + 1])",
        "torch.arange(500.0)[None]",
    ),
    "subclass": ("lambda x: x * 2", "outputs(lambda o: [nn.Parameter(o[0])])", "randn(4)"),
    "cut alias": ("lambda x: x.view(-1)", "outputs(lambda o: [o[0].clone()])", "randn(3, 4)"),
    "cut alias of a conjugate": (
        "lambda x: x.conj()",
        "outputs(lambda o: [o[0].clone()])",
        "randn(3, dtype=torch.complex64)",
    ),
    "added alias": (
        "lambda x: (x + 1, x + 1)",
        "outputs(lambda o: [o[0], o[0]])",
        "randn(3)",
    ),
    "dropped mutation": ("lambda x: x.add_(1) * 1", "without('add_')", "randn(4)"),
    "control: nothing is left out": (
        "lambda x: (torch.rand(3), x * 2)[1]",
        "without('nothing')",
        "randn(4)",
    ),
    "extra random step": (
        "lambda x: nn.functional.dropout(x, 0.5)",
        "outputs(lambda o: (torch.rand(5), o)[1])",
        "randn(30)",
    ),
    "requires_grad lost": (
        "lambda x: x * 2",
        "outputs(lambda o: [o[0].detach()])",
        "randn(4, requires_grad=True)",
    ),
    "gradient scaled": (
        "lambda x: x * 2",
        "outputs(lambda o: [Sevenfold.apply(o[0])])",
        "randn(4, requires_grad=True)",
    ),
    "gradient of a mutated argument": (
        "lambda x, w: x.mul_(w)",
        "lambda gm, i: lambda x, w: [x.mul_(Sevenfold.apply(w))][:1]",
        "randn(3, requires_grad=True) * 1, randn(3, requires_grad=True)",
    ),
    "attribute": ("Keeps()", "outputs(lambda o: [o[0], *(v * 5 for v in o[1:])])", "randn(4, 3)"),
    "rebound buffer": ("Rebinds()", "outputs(lambda o: [v * 5 for v in o])", "randn(4, 3)"),
    "parameters overwritten": ("nn.Linear(3, 3)", "overwrites", "randn(2, 3)"),
    "behind a mask": (
        "masked",
        "outputs(lambda o: [torch.where(MASK, o[0], 400.0)])",
        "randn(8, 4), randn(8, 4)",
    ),
    "bias dropped in bfloat16": (
        "lambda x, w, b: x @ w + b",
        "lambda gm, i: lambda x, w, b: [x @ w]",
        "randn(64, 64).bfloat16(), randn(64, 64).bfloat16(), torch.full((64,), 0.2).bfloat16()",
    ),
    "quiet channels negated": (
        "lambda x: x * 1.5",
        "outputs(lambda o: [torch.cat([o[0][:, :1], -o[0][:, 1:]], 1)])",
        "(randn(32, 64) * torch.cat([torch.tensor([2000.0]), torch.ones(63)])).bfloat16()",
    ),
    "array dtype": ("lambda x: (x * 2).numpy()", "outputs(lambda o: [o[0].double()])", "randn(4)"),
}
NOT_WRONG = ("control: nothing is left out",)


@pytest.mark.parametrize("name", MUTATORS)
def test_a_wrong_backend_is_caught(name: str, run_suite: RunSuite) -> None:
    target, backend, arguments = MUTATORS[name]
    run = run_suite(
        "import torch\n"
        "from torch import nn, randn\n"
        "from library import *\n"
        "from library import MASK\n"
        "def test_it(compileguard):\n"
        "    torch.manual_seed(0)\n"
        f"    compileguard({target}, backend={backend})({arguments})\n",
        "--compileguard-no-locate",
        library=LIBRARY,
    )
    expected = {"passed": 1} if name in NOT_WRONG else {"failed": 1}
    run.result.assert_outcomes(**expected)
    if name not in NOT_WRONG:
        blamed = [f["metric"] for f in run.check["findings"] if f["status"] == "failed"]
        assert set(blamed) <= {"parity", "compiled"}, run.text


def test_explicit_tolerances_are_not_overruled(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch
        from library import outputs

        def test_it(compileguard):
            wrong = outputs(lambda o: [o[0] * (1 + 2**-22)])
            compileguard(lambda x: x.sin(), backend=wrong, rtol=0, atol=0)(torch.randn(100))
        """,
        library=LIBRARY,
    )
    run.result.assert_outcomes(failed=1)


def test_coroutines_are_refused(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        async def target(x):
            return x

        def test_it(compileguard):
            compileguard(target)
        """
    )
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(["*does not compile coroutines*"])


def test_an_iterator_is_not_used_up(run_suite: RunSuite) -> None:
    run = run_suite(
        """
        import torch

        def test_it(compileguard):
            numbers = (float(n) for n in range(9))
            guarded = compileguard(lambda x, n: x * next(n), backend="aot_eager")
            guarded(torch.ones(2), numbers)
            assert next(numbers) == 1
        """
    )
    run.result.assert_outcomes(failed=1)
    run.result.stdout.fnmatch_lines(["*used up by reading*"])
