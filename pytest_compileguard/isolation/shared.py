"""What a shadow call shares with the test, and so must not be written to."""

from __future__ import annotations

from pytest_compileguard.isolation.fingerprint import Fingerprint, fingerprints
from pytest_compileguard.isolation.mirror import Mirror
from pytest_compileguard.isolation.scene import Scene


class Shared:
    """Parameters, their gradients, and tensors in globals, as they were when a call began."""

    def __init__(self, mirror: Mirror | None, scene: Scene) -> None:
        self._mirror = mirror
        self._scene = scene
        self._earlier = self._marks()

    def written(self, who: str) -> str | None:
        """Say what was written to since, and what to do."""
        now, earlier = self._marks(), self._earlier
        moved = [now[key][0] for key in earlier if key in now and now[key] != earlier[key]]
        if moved:
            return (
                f"{who} writes to parameters or their gradients ({', '.join(moved[:3])}), which "
                "the shadow shares: guard steps of training by compileguard.training(model, "
                "optimizer, loss_fn), or make the optimizer outside of the call and hand it in; "
                "hand a weight that the forward itself renormalises (max_norm=) in as a plain "
                "tensor, or renormalise it once and set max_norm to None"
            )
        if outside := self._scene.snapshot.written_tensors(self._scene.now().snapshot):
            return (
                f"{who} writes to {', '.join(outside[:3])}: a parameter or a tensor above 1 MiB "
                "that a global holds, and that the shadow shares; make it a buffer of the target, "
                "or hand it in as an argument"
            )
        return None

    def _marks(self) -> dict[int, Fingerprint]:
        if self._mirror is None or not self._mirror.shares_parameters:
            return {}
        return fingerprints(self._mirror.state(), gradients=not self._mirror.copies_gradients)
