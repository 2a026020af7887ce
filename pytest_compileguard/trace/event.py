"""One event of torch's structured trace."""

from __future__ import annotations

from typing import Any

from pytest_compileguard.observation import Record


class TraceEvent(Record):
    """One record of torch's structured trace, and the call in which it came."""

    call: int
    metadata: dict[str, Any]
    payload: str
    resets: int = 0
    """How often torch was reset before it, since somebody listens: compile ids begin anew then."""

    @property
    def compile_id(self) -> str:
        """``frame/compile``, as in torch's logs; empty for events outside of a compile."""
        frame, number = self.metadata.get("frame_id"), self.metadata.get("frame_compile_id")
        return "" if frame is None else f"{frame}/{number}"

    @property
    def artifact(self) -> str:
        artifact = self.metadata.get("artifact")
        return str(artifact.get("name", "")) if isinstance(artifact, dict) else ""

    @property
    def metrics(self) -> dict[str, Any] | None:
        value = self.metadata.get("compilation_metrics")
        return value if isinstance(value, dict) else None
