"""Which states of a GPU disturb a measurement. Pure, but for the moment at which it is asked.

What is *disturbed* is sampled again, and a ratio below the limit then proves nothing: the GPU was
slowed down for heat, by its hardware or by a power brake, or another process computed on it. That
a GPU is idle before, or held at its ordinary power cap by the load itself, is as it should be.
What *may* disturb is only told: another process that is there and did nothing that was seen, and
instances of the GPU, which share its memory's bandwidth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from pytest_compileguard.observation import GpuState, Record
from pytest_compileguard.timing.gpu_state import GpuUnreadError

SLOWED_DOWN = frozenset(
    {
        "hardware slowdown",
        "software thermal slowdown",
        "hardware thermal slowdown",
        "hardware power brake",
    }
)
"""Reasons for low clocks that come and go with the machine, not with what is timed."""
BUSY_PERCENT = 10
"""What one process may compute beside: the calls of a test that another worker runs need less."""


_LONGEST_SAMPLE_S = 1.0
"""What a driver says of a process at a moment is of up to a second before it."""
_TOLD_WITHIN_S = 0.8
"""What a driver says comes late: of a neighbour that began to compute, an H200 told 14 % after
0.4 s and 22 % after 0.8 s."""
_ASKED_EVERY_S = 0.05


class Conditions(Record):
    """What a device was like around a measurement; states are those of a GPU."""

    before: GpuState | None = None
    after: GpuState | None = None
    unread: str | None = None
    disturbed: tuple[str, ...] = ()
    void: str | None = None
    """Why a ratio proves nothing, high or low."""
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """Reads the state of one GPU."""

    def __call__(self, since_s: float | None = None) -> GpuState:
        """Read it; work of other processes counts from then on."""


class Watch:
    """Looks at a GPU before and after a measurement; a failure to do so is told, never raised."""

    def __init__(
        self, find: Callable[[], Reader] | None = None, *, released_s: float = 0.0
    ) -> None:
        """Look by what ``find`` finds, if at all.

        Args:
            find: Finds what reads the state.
            released_s: Moment at which another process ended timing here, which was no neighbour.
        """
        self._find = find
        self._released_s = released_s
        self._reader: Reader | None = None
        self._before: GpuState | None = None
        self._since_s = 0.0
        self._began = False
        self._unread: str | None = None
        self._neighbour: tuple[str, ...] = ()
        """Who disturbed the last measurement; whoever is still there, unseen, counts on."""

    def begin(self) -> None:
        """Read the state before."""
        self._before = None
        try:
            if self._reader is None and self._find is not None:
                self._reader = self._find()
            if self._reader is not None:
                self._before = self._reader()
        except GpuUnreadError as error:
            self._unread, self._find, self._reader = str(error), None, None
        # A short measurement is over before the driver tells of it: whoever computed right before
        # the first one is taken for one who goes on. A later one shows whether that was so.
        back_s = 0.0 if self._began else _LONGEST_SAMPLE_S
        self._began = True
        self._since_s = max(time.time() - back_s, self._released_s + _LONGEST_SAMPLE_S)

    def end(self, *, patient: bool = False) -> Conditions:
        """Read the state after, and judge both.

        Args:
            patient: Where another process is there, let the driver tell of it first.
        """
        if self._reader is None or self._before is None:
            return Conditions(unread=self._unread)
        try:
            after = self._reader(self._since_s)
            end_s = time.monotonic() + _TOLD_WITHIN_S if patient and after.other_processes else 0.0
            while not _shared(after) and time.monotonic() < end_s:
                time.sleep(_ASKED_EVERY_S)
                after = self._reader(self._since_s)
        except GpuUnreadError as error:
            return Conditions(before=self._before, unread=str(error))
        self._neighbour = _shared(after, known=self._neighbour)
        return Conditions(
            before=self._before,
            after=after,
            disturbed=(*_slowed_down(self._before, after), *self._neighbour),
            notes=() if self._neighbour else doubts_about(after),
        )


class Watching(Protocol):
    """Looks at one device before and after a measurement."""

    def begin(self) -> None:
        """Read the state before."""

    def end(self, *, patient: bool = False) -> Conditions:
        """Read the state after, and judge both."""


class WatchAll:
    """Looks at all devices that a measurement uses; the states told are those of the first."""

    def __init__(self, watches: Sequence[Watching]) -> None:
        self._watches = watches

    def begin(self) -> None:
        """Read the states before."""
        for watch in self._watches:
            watch.begin()

    def end(self, *, patient: bool = False) -> Conditions:
        """Read the states after; what disturbed one of the devices disturbed the measurement."""
        first, *_ = found = [watch.end(patient=patient) for watch in self._watches]
        return Conditions(
            before=first.before,
            after=first.after,
            unread=next((one.unread for one in found if one.unread is not None), None),
            disturbed=tuple(dict.fromkeys(reason for one in found for reason in one.disturbed)),
            void=next((one.void for one in found if one.void is not None), None),
            notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
        )


def disturbances(before: GpuState, after: GpuState) -> tuple[str, ...]:
    """Name what disturbed a measurement between two states."""
    return (*_slowed_down(before, after), *_shared(after))


def doubts_about(after: GpuState) -> tuple[str, ...]:
    """Name what may have disturbed it, and can't be seen to."""
    found = []
    if after.other_processes and after.others_busy_percent is None:
        others = "another process" if after.other_processes == 1 else "other processes"
        found.append(f"{others} had this GPU open; whether busy, the driver does not tell")
    if after.mig:
        found.append("the GPU is split into instances (MIG), which share its memory")
    return tuple(found)


def _slowed_down(before: GpuState, after: GpuState) -> tuple[str, ...]:
    reasons = dict.fromkeys((*(before.clock_reasons or ()), *(after.clock_reasons or ())))
    found = [reason for reason in reasons if reason in SLOWED_DOWN]
    if not found and _heated(before, after):
        found = ["thermal slowdown"]
    if not found:
        return ()
    at = "" if after.temperature_c is None else f", {after.temperature_c} °C"
    clock = "" if after.sm_clock_mhz is None else f", {after.sm_clock_mhz} MHz"
    return (f"the GPU was slowed down ({', '.join(found)}{at}{clock})",)


def _heated(before: GpuState, after: GpuState) -> bool:
    """Whether it was too hot at some moment between the two."""
    earlier_s, later_s = before.thermal_slowdown_s, after.thermal_slowdown_s
    return earlier_s is not None and later_s is not None and later_s > earlier_s


def _shared(after: GpuState, *, known: tuple[str, ...] = ()) -> tuple[str, ...]:
    if after.others_busy_percent is None and after.other_processes:
        return known
    busy_percent = after.others_busy_percent or 0
    if busy_percent < BUSY_PERCENT:
        return ()
    return (f"another process kept the GPU busy ({busy_percent} % of the time)",)
