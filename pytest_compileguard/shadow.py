"""Makes one guarded call: the test's own eager call, and its compiled shadow.

Three calls start from the same state: the real one, which alone the test sees; an
eager one and a compiled one on copies, which are compared with each other. So the
test gets exactly what one eager call gives, and nothing that comparing needs (keeping
graphs, differentiating, firing hooks) touches it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_compileguard import dynamo
from pytest_compileguard.compile_error import explain_error
from pytest_compileguard.errors import IsolationError
from pytest_compileguard.isolation.ambient import Ambient, RandomState, ambient, random_state
from pytest_compileguard.isolation.fingerprint import fingerprints
from pytest_compileguard.isolation.mirror import Mirror
from pytest_compileguard.isolation.quiet import silenced
from pytest_compileguard.parity.comparison import IncomparableError, Tolerance, compare
from pytest_compileguard.parity.gradients import Cotangents, NamedTensor
from pytest_compileguard.parity.leaves import leaves_of
from pytest_compileguard.parity.reference import within_precision
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
        before, modes = random_state(), ambient()
        sides = self._prepare(made, args, kwargs)
        fingerprints = self._fingerprints()
        try:
            with dynamo.eager_stance():
                made.value = self._target(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  # handed to the test unchanged
            made.error = error
        after = random_state()
        made.drew_random = not before.same_tensors_drawn(after)
        try:
            if sides is not None and self._untouched(made, fingerprints, "the call"):
                with torch.set_grad_enabled(modes.grad):  # the call may have left another
                    self._shadow(made, sides, before, modes)
                self._untouched(made, fingerprints, "the compiled code")
        except torch.OutOfMemoryError as error:
            made.problem = explain_error(error)[0]
        except Exception as error:  # noqa: BLE001  # the check fails by it, the test goes on
            made.problem = f"the shadow call failed ({type(error).__name__}: {error})"
        finally:
            after.restore()
            for mirror in self._mirrors or ():
                mirror.release()
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

    def _fingerprints(self) -> dict[int, tuple[str, int, int]]:
        shared = self._mirrors is not None and self._mirrors[1].shares_parameters
        return fingerprints(self._mirrors[1].state()) if self._mirrors and shared else {}

    def _untouched(
        self, made: ShadowCall, earlier: dict[int, tuple[str, int, int]], who: str
    ) -> bool:
        """Whether the parameters, which the shadow shares, are as they were."""
        now = self._fingerprints()
        moved = [now[key][0] for key in earlier if key in now and now[key] != earlier[key]]
        if moved:
            made.problem = (
                f"{who} writes to parameters ({', '.join(moved[:3])}), which the shadow "
                "shares; guard a function that holds the optimizer too, or use buffers"
            )
        return not moved

    def _shadow(
        self,
        made: ShadowCall,
        sides: tuple[Prepared, Prepared, Prepared],
        before: RandomState,
        modes: Ambient,
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
        if differs := _copy_differs(expected, made):
            made.problem = (
                f"a copy of the call computes something else ({differs}): the target can't be "
                "isolated; it may keep state in globals or classes that are not copied"
            )
            return
        drawn = random_state()
        before.restore()
        counted = dynamo.counters()
        with (
            silenced(compiling=True),
            dynamo.tracing(made.index) as made.trace,
        ):
            actual = compiled.run(expected.cotangents)
        left = random_state()
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
        # Dynamo fills lazy parameters before it traces, with other draws than eager.
        told = actual.error is None and not _has_lazy_parameters(snapshot)
        if told and not left.same_tensors_drawn(drawn):
            comparison.report_random_state()
        if expected.error is None:
            self.last = Timeable(
                call=made.index,
                eager=eager,
                compiled=compiled,
                ambient=modes,
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


def _has_lazy_parameters(snapshot: Prepared) -> bool:
    twins = (twin for _, twin in snapshot.mirror.state().values())
    return any(isinstance(t, torch.Tensor) and torch.nn.parameter.is_lazy(t) for t in twins)


def _copy_differs(expected: Side, made: ShadowCall) -> str | None:
    """Say where the eager copy differs from the real call: then it proves nothing of it."""
    if made.error is not None:
        return None
    real = leaves_of(made.value, "output", objects=True)
    if [leaf.path for leaf in real] != [leaf.path for leaf in expected.outputs]:
        return "its result has another structure"
    for own, copied in zip(real, expected.outputs, strict=True):
        found = None
        with contextlib.suppress(IncomparableError):
            found = compare(copied.value, own.value, Tolerance(None, None), form=False)
        inexact = (
            found is not None and found.kind == "value" and isinstance(own.value, torch.Tensor)
        )
        if inexact and within_precision(copied.value.detach(), own.value.detach()):
            continue  # some kernels add in another order each time
        if found is not None:
            return f"{own.path}: {found.message}".replace("compiled", "the copy").replace(
                "eager", "the call"
            )
    return None


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
