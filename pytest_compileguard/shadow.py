"""Makes one guarded call: the test's own eager call, and its compiled shadow.

Three calls start from the same state: the real one, which alone the test sees; an
eager one and a compiled one on copies, which are compared with each other. So the
test gets exactly what one eager call gives, and nothing that comparing needs (keeping
graphs, differentiating, firing hooks) touches it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_compileguard import dynamo
from pytest_compileguard.compile_error import explain_error
from pytest_compileguard.errors import IsolationError
from pytest_compileguard.isolation.ambient import Ambient, RandomState, ambient, random_state
from pytest_compileguard.isolation.mirror import Mirror
from pytest_compileguard.isolation.quiet import silenced
from pytest_compileguard.parity.comparison import Tolerance
from pytest_compileguard.parity.gradients import Cotangents, NamedTensor
from pytest_compileguard.parity.sides import CallParity, Side, SideComparison, run_side
from pytest_compileguard.plan import Plan
from pytest_compileguard.target import argument_names

Copies = tuple[tuple[Any, ...], dict[str, Any], list[NamedTensor]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """One side, ready to be called."""

    target: Callable[..., Any]
    mirror: Mirror
    copies: Copies
    names: tuple[str, ...]
    """Of the positional arguments."""

    def run(self, cotangents: Cotangents | None = None) -> Side:
        return run_side(self.target, self.mirror, self.copies, self.names, cotangents)

    def __call__(self) -> object:
        args, kwargs, _ = self.copies
        return self.target(*args, **kwargs)


@dataclass(kw_only=True, slots=True)
class ShadowCall:
    """What one guarded call left."""

    index: int
    value: Any = None
    error: Exception | None = None
    """What the real call raised."""
    trace: dynamo.CallTrace | None = None
    counters: dynamo.Counters | None = None
    """How torch's counters moved during the compiled call."""
    parity: CallParity | None = None
    drew_random: bool = False
    compile_error: tuple[str, str] | None = None
    """Why the compiled call failed although eager does not, and the remedy."""
    problem: str | None = None
    """Why there is no shadow; the check fails by it."""
    hindrances: tuple[str, ...] = ()
    notes: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeable:
    """Both sides of the last call, for timing."""

    call: int
    eager: Prepared
    compiled: Prepared
    ambient: Ambient
    device: str


class Shadow:
    """Both sides of one target, over all its calls."""

    def __init__(self, plan: Plan, target: Callable[..., Any]) -> None:
        self._plan = plan
        self._target = target
        self._form = dynamo.compiled_form(target)
        self._mirrors: tuple[Mirror, Mirror, Mirror] | None = None
        self._compiled: Callable[..., Any] | None = None
        self.last: Timeable | None = None

    @property
    def compiled_already(self) -> bool:
        """Whether the test itself compiled the target; compile arguments are then its own."""
        return self._form is not None

    def call(self, index: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ShadowCall:
        """Make the real call, then its shadow. Only the real call's exceptions are kept."""
        __tracebackhide__ = True
        made = ShadowCall(index=index, hindrances=dynamo.hindrances(self._target))
        before = random_state()
        sides = self._prepare(made, args, kwargs)
        versions = _versions(sides)
        try:
            with dynamo.eager_stance():
                made.value = self._target(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  # handed to the test unchanged
            made.error = error
        after = random_state()
        made.drew_random = not before.same_tensors_drawn(after)
        try:
            if sides is not None and self._untouched(made, versions):
                self._shadow(made, sides, before)
        except torch.OutOfMemoryError as error:
            made.problem = explain_error(error)[0]
        except Exception as error:  # noqa: BLE001  # the check fails by it, the test goes on
            made.problem = f"the shadow call failed ({type(error).__name__}: {error})"
        finally:
            after.restore()
        return made

    def recompiled(self) -> Timeable | None:
        """The last call with code compiled anew, as a user would compile it."""
        last = self.last
        if last is None:
            return None
        dynamo.forget_compiled_code()
        _, _, mirror = self._make_mirrors(*last.compiled.copies[:2])
        target = self._compile(mirror.target(self._target))
        prepared = dataclasses.replace(last.compiled, target=target, mirror=mirror)
        self.last = dataclasses.replace(last, compiled=prepared)
        return self.last

    def _prepare(
        self, made: ShadowCall, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Prepared, Prepared, Prepared] | None:
        try:
            if self._mirrors is None:
                self._mirrors = self._make_mirrors(args, kwargs)
            names = argument_names(self._target, len(args))
            prepared = []
            for mirror in self._mirrors:
                target = mirror.target(self._target)
                copies = mirror.arguments(args, kwargs, names)
                prepared.append(Prepared(target=target, mirror=mirror, copies=copies, names=names))
        except IsolationError as error:
            made.problem = str(error)
            return None
        except Exception as error:  # noqa: BLE001  # any class may refuse to be copied
            made.problem = f"the call can't be isolated ({type(error).__name__}: {error})"
            return None
        snapshot, eager, twin = prepared
        made.notes |= eager.mirror.notes
        try:
            if self._compiled is None:
                self._compiled = self._compile(twin.target)
        except Exception as error:  # noqa: BLE001  # an unknown backend, options that don't exist
            made.compile_error = explain_error(error)
            return None
        return snapshot, eager, dataclasses.replace(twin, target=self._compiled)

    def _make_mirrors(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Mirror, Mirror, Mirror]:
        """Mirrors for a snapshot, the eager side and the compiled side.

        Parameters are shared with the target, unless it holds an optimizer.
        """
        probe = Mirror(share_parameters=True, compiled_form=dynamo.compiled_form)
        probe.target(self._target)
        probe.arguments(args, kwargs, argument_names(self._target, len(args)))
        share = not probe.holds_optimizer
        return (
            Mirror(share_parameters=share, compiled_form=dynamo.compiled_form),
            Mirror(share_parameters=share, compiled_form=dynamo.compiled_form),
            Mirror(share_parameters=share, compiled_form=dynamo.compiled_form, compiles=True),
        )

    def _compile(self, twin: Callable[..., Any]) -> Callable[..., Any]:
        if self.compiled_already:
            return twin  # its mirror compiled it as the test did
        dynamo.load_backend(self._plan.arguments.backend)
        return torch.compile(twin, **self._plan.arguments.given)

    def _untouched(self, made: ShadowCall, versions: dict[str, int]) -> bool:
        """Whether the parameters, which the shadow shares, are as they were."""
        if self._mirrors is None:
            return False
        moved = [
            name
            for name, now in _versions_of(self._mirrors[1]).items()
            if now != versions.get(name, now)
        ]
        if moved:
            made.problem = (
                f"the call writes to its parameters ({', '.join(moved[:3])}), which the shadow "
                "shares; guard a function that holds the optimizer too, or use buffers"
            )
        return not moved

    def _shadow(
        self, made: ShadowCall, sides: tuple[Prepared, Prepared, Prepared], before: RandomState
    ) -> None:
        snapshot, eager, compiled = sides
        before.restore()
        with silenced(), dynamo.eager_stance():
            expected = eager.run()
        if type(expected.error) is not type(made.error):
            made.problem = (
                f"a copy of the call {_outcome(expected.error)} where the call itself "
                f"{_outcome(made.error)}: the target can't be isolated"
            )
            return
        before.restore()
        counted = dynamo.counters()
        with (
            silenced(compiling=True),
            dynamo.tracing(made.index) as made.trace,
        ):
            actual = compiled.run(expected.cotangents)
        made.counters = dynamo.counters().since(counted)
        if actual.error is not None and expected.error is None:
            made.compile_error = explain_error(actual.error)
            return
        if actual.gradient_error is not None and expected.gradient_error is None:
            made.compile_error = explain_error(actual.gradient_error)
        comparison = SideComparison(
            call=made.index,
            tolerance=Tolerance(self._plan.rtol, self._plan.atol),
            reference=lambda seed: self._reference(made, snapshot, expected.cotangents, seed),
        )
        made.parity = comparison.compare(expected, actual)
        if expected.error is None:
            self.last = Timeable(
                call=made.index,
                eager=eager,
                compiled=compiled,
                ambient=ambient(),
                device=_device(expected, eager),
            )

    def _reference(
        self, made: ShadowCall, snapshot: Prepared, cotangents: Cotangents, seed: int | None
    ) -> Side | str:
        """Run the call in float64, from the state that the snapshot kept.

        With a seed, that state is moved at random by as much as rounding may have moved it.
        """
        if made.drew_random:
            return "the call draws random numbers"
        rounding = None if seed is None else torch.Generator().manual_seed(seed)
        mirror = Mirror(
            share_parameters=True,
            compiled_form=dynamo.compiled_form,
            widens=True,
            rounding=rounding,
        )
        args, kwargs, _ = snapshot.copies
        target = mirror.target(snapshot.target)
        copies = mirror.arguments(args, kwargs, snapshot.names)
        wide = {p: t.to(_wide(t.dtype)) for p, t in cotangents.by_path.items()}
        with silenced(), dynamo.eager_stance():
            side = run_side(target, mirror, copies, snapshot.names, Cotangents(wide))
        return side if side.error is None else f"it raises {type(side.error).__name__}"


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _versions(sides: tuple[Prepared, Prepared, Prepared] | None) -> dict[str, int]:
    return {} if sides is None else _versions_of(sides[1].mirror)


def _versions_of(mirror: Mirror) -> dict[str, int]:
    """Version counters of shared parameters; a twin has that of its original."""
    return {
        path: twin._version  # noqa: SLF001  # no public name
        for path, twin in mirror.state().values()
        if mirror.shares_parameters and isinstance(twin, torch.nn.Parameter)
    }


def _outcome(error: Exception | None) -> str:
    return "returns" if error is None else f"raises {type(error).__name__} ({error})"


def _device(side: Side, prepared: Prepared) -> str:
    """Where the call ran: the first accelerator among its tensors, else the CPU."""
    leaves = [leaf.value for leaf in [*side.outputs, *side.arguments]]
    state = [value for _, value in prepared.mirror.state().values()]
    devices = [t.device for t in [*leaves, *state] if isinstance(t, torch.Tensor)]
    for device in devices:
        if device.type not in ("cpu", "meta"):
            return str(torch.device(device.type, device.index or 0))
    return "cpu"
