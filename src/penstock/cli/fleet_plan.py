"""When a run of the simulated fleet begins and ends, and how fast it goes: what the flags say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.hives.sensors.fleet.demand import SLOT_SECONDS
from penstock.hives.sensors.fleet.fleet import WINDOW_SLOTS

#: A fleet begins with five quiet minutes; one that begins now has them behind it.
LEAD: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Plan:
    start: datetime
    first: datetime  #: the first moment that is waited for; what was before it is sent at once
    until: datetime | None  #: None: for ever
    speed: float | None  #: None: as fast as it goes
    stamped: bool  #: frames have to say when they are from
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
            # Fleets go by whole steps: one that goes on live must not have told the future.
            end = _step_before(begin + span) if live else begin + span
            return cls(begin, begin, end, None, stamped=True, live=live)
        if live:
            raise ConfigurationError("--live is what comes after a --backlog")
        first = start or now
        until = None if lasting is None else first + timedelta(seconds=lasting)
        if until is None and speed is None:
            raise ConfigurationError("--speed max has no end: say how long with --for 1d")
        begin = start or now - LEAD
        return cls(begin, first, until, speed, stamped=speed != 1.0 or start is not None)

    @property
    def slots(self) -> int:
        """How much of its time is simulated at once: little, where orders may come."""
        return WINDOW_SLOTS if self.speed is None else 1


def _step_before(moment: datetime) -> datetime:
    return moment - timedelta(seconds=moment.timestamp() % SLOT_SECONDS)
