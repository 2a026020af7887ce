"""Differentiates what can be of a call, where eager can't differentiate all of it.

One result may have no backward pass, or be written to after its backward pass was set up. Asked for
all gradients at once, autograd raises for it, and nothing would be known of the other results. As
autograd drops what it kept while it runs, each trial makes the call anew.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from pytest_compileguard import dynamo
from pytest_compileguard.isolation.quiet import silenced
from pytest_compileguard.isolation.scene import Scene
from pytest_compileguard.parity.gradients import Cotangents
from pytest_compileguard.parity.side import Side
from pytest_compileguard.shadow.prepared import Prepared

_NOTHING = Cotangents({})


def with_what_can_be_differentiated(expected: Side, snapshot: Prepared, scene: Scene) -> Side:
    """The eager side, with the gradients of all that can be differentiated together."""
    error = expected.gradient_error
    if error is None:
        return expected
    trials = _Trials(snapshot, scene, expected.cotangents)
    weights = trials.weights(list(expected.cotangents.by_path), error)
    if not weights.by_path:
        return dataclasses.replace(expected, cotangents=_NOTHING)
    made = trials.run(weights)
    return dataclasses.replace(
        expected,
        gradients=made.gradients,
        cotangents=_NOTHING if made.gradient_error else weights,
        gradient_error=made.gradient_error,
    )


@dataclass(frozen=True, slots=True)
class _Trials:
    """Finds, by halving, what can be differentiated."""

    _snapshot: Prepared
    _scene: Scene
    _drawn: Cotangents
    _left_out: dict[str, Exception] = field(default_factory=dict)

    def weights(self, paths: list[str], error: Exception) -> Cotangents:
        """The weights of what can be differentiated of these; together they raise this."""
        possible = self._parts_of(paths, error)
        return self._drawn.only(possible)._replace(left_out=tuple(self._left_out.items()))

    def run(self, weights: Cotangents) -> Side:
        """Make the call anew, and differentiate what is weighted."""
        self._scene.restore()
        with silenced(), dynamo.eager_stance():
            return self._snapshot.again().run(weights)

    def _possible(self, paths: list[str]) -> list[str]:
        error = self.run(self._drawn.only(paths)).gradient_error
        return paths if error is None else self._parts_of(paths, error)

    def _parts_of(self, paths: list[str], error: Exception) -> list[str]:
        if len(paths) == 1:
            self._left_out[paths[0]] = error.with_traceback(None)
            return []
        middle = len(paths) // 2
        return [*self._possible(paths[:middle]), *self._possible(paths[middle:])]
