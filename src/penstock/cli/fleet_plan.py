"""When a run of the simulated fleet begins and ends, and how fast it goes: what the flags say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.core.errors import ConfigurationError
from penstock.hives.sensors.fleet.fleet import WINDOW_SLOTS


@dataclass(frozen=True, slots=True)
class Plan:
    start: datetime
    until: datetime | None  #: None: for ever
    speed: float | None  #: None: as fast as it goes
    now: datetime
    live: bool = False  #: afterwards, go on as time does

    @classmethod
    def of(
        cls,
        backlog: float | None,
        live: bool,
        start: datetime | None,
        lasting: float | None,
        speed: float | None,
        now: datetime,
    ) -> Plan:
        if backlog is not None:
            if lasting is not None:
                raise ConfigurationError("--backlog says how long: leave --for away")
            span = timedelta(seconds=backlog)
            begin = start or now - span
            return cls(begin, begin + span, None, now, live)
        if live:
            raise ConfigurationError("--live is what comes after a --backlog")
        begin = start or now
        until = None if lasting is None else begin + timedelta(seconds=lasting)
        if until is None and speed is None:
            raise ConfigurationError("--speed max has no end: say how long with --for 1d")
        return cls(begin, until, speed, now)

    @property
    def as_it_is(self) -> bool:
        """Frames are sent when they should be, and need not say when that was."""
        return self.speed == 1.0 and self.start == self.now

    @property
    def slots(self) -> int:
        """How much of its time is simulated at once: little, where orders may come."""
        return WINDOW_SLOTS if self.speed is None else 1
