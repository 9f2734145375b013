"""The devices: what they count, and when they send it. Five minutes of all of them at a time.

A report is sent when as many passages were counted as the threshold says, or when nothing was sent
for the reporting interval; an event is sent for each. A restart happens at the beginning of five
minutes: what was not sent is forgotten, and the totals begin at 0.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.hives.sensors.fleet.demand import SLOT_SECONDS
from penstock.hives.sensors.fleet.makings import EVENT, V2, Makings, Numbers
from penstock.hives.sensors.fleet.passages import SETTLE, SLOT, Passages, counted_up
from penstock.hives.sensors.fleet.quirks import Quirks
from penstock.hives.sensors.fleet.sent import Form, Sent, rows
from penstock.hives.sensors.messages.configuration import Configuration
from penstock.hives.sensors.messages.event import EventType
from penstock.hives.sensors.messages.report_type import ReportType

#: Of devices that send events, which need no timer.
_NEVER: Final = 1 << 60
_MINUTE: Final = 60_000
#: Of restarts, how many come before the network has told the device the time.
_DATELESS: Final = 0.2


class Devices:
    """Arrays by sensor: the state that lasts from one step to the next."""

    def __init__(self, makings: Makings, quirks: Quirks, start: int) -> None:
        count = len(makings)
        self._makings = makings
        self._restart_chance = quirks.restarts * SLOT_SECONDS / 86_400
        self._ran_before = quirks.wraps
        self._events = makings.protocol == EVENT
        self._form = np.select([makings.protocol == V2, self._events], [Form.REPORT2, Form.EVENT])
        self._threshold = np.ones(count, np.int64)
        self._interval = np.full(count, _NEVER)
        self._status_interval = np.zeros(count, np.int64)
        self._pending = np.zeros(count, np.int64)
        self._last_sent = np.full(count, start)
        self._booted = np.full(count, start)
        self.discarded = np.zeros(count, np.int64)
        self.configuration_id = np.zeros(count, np.int64)
        self.total_in = makings.first_in.copy()
        self.total_out = makings.first_out.copy()
        self.configure(np.arange(count), Configuration())
        self._next_status = start + makings.stagger * self._status_interval // 1000

    def configure(self, sensors: Numbers, to: Configuration) -> None:
        """Obey. No device reports by its timer oftener than every five minutes."""
        counting = sensors[~self._events[sensors]]
        self._threshold[counting] = max(to.event_threshold, 1)
        self._interval[counting] = max(to.report_interval_min * _MINUTE, SLOT)
        self._status_interval[sensors] = max(to.status_interval_min * _MINUTE, SLOT)
        self.configuration_id[sensors] = to.configuration_id

    def begin(self, slot: int, rng: np.random.Generator) -> Sent:
        """The first five minutes: nobody passes, and every device that counts tells its totals."""
        sensors = np.flatnonzero(~self._events)
        at = slot + rng.integers(0, SLOT, len(sensors))
        self._last_sent[sensors] = at
        kind = ReportType.TIMER if self._ran_before else self._start_type(sensors)
        return self._reports(sensors, at, kind, self.total_in[sensors], self.total_out[sensors])

    def restart(self, slot: int, rng: np.random.Generator) -> tuple[Numbers, Sent]:
        """Who starts again in the slot's first moments, and what they say then."""
        lot = rng.random(len(self._pending)) < self._restart_chance
        again = np.flatnonzero(lot)
        at = slot + rng.integers(0, SETTLE, len(again))
        self.total_in[again] = self.total_out[again] = self._pending[again] = 0
        self._last_sent[again] = self._booted[again] = self._next_status[again] = at
        telling = ~self._events[again]
        sensors, zero = again[telling], np.zeros(telling.sum(), np.int64)
        sent = self._reports(sensors, at[telling], self._start_type(sensors), zero, zero)
        sent["dateless"] = rng.random(len(sent)) < _DATELESS
        return again, sent

    def count(self, passages: Passages) -> list[Sent]:
        """What is sent of these passages, by timer and by threshold, in this order."""
        total = passages.total
        due = self._last_sent + self._interval
        timed = np.flatnonzero(due < passages.slot + SLOT)
        when = np.maximum(due[timed], passages.slot)
        passed = passages.up_to(timed, when)
        # A threshold reached before sends a report, and the timer begins again.
        quiet = self._pending[timed] + passed < self._threshold[timed]
        timed, when, passed = timed[quiet], when[quiet], passed[quiet]
        by_timer = self._told(passages, timed, passed, when, ReportType.TIMER)
        self._last_sent[timed] = when

        told = -self._pending
        told[timed] = passed
        count, self._pending = np.divmod(total - told, self._threshold)
        sensor = np.repeat(np.arange(len(total)), count)
        number = told[sensor] + self._threshold[sensor] * (counted_up(count) + 1)
        at = passages.at(sensor, number)
        by_threshold = self._told(passages, sensor, number, at, ReportType.EVENTS)
        self._name_events(passages, by_threshold, sensor, number)
        self._last_sent[sensor] = at  # of several, the last
        self.total_in += passages.entries
        self.total_out += passages.exits
        return [by_timer, by_threshold]

    def statuses(self, slot: int) -> Sent:
        sensors = np.flatnonzero(self._next_status < slot + SLOT)
        at = np.maximum(self._next_status[sensors], slot)
        self._next_status[sensors] = at + self._status_interval[sensors]
        return self.status_of(sensors, at)

    def status_of(self, sensors: Numbers, at: Numbers) -> Sent:
        return rows(
            sensors,
            at=at,
            form=Form.STATUS,
            total_in=self._booted[sensors] // 1000,
            total_out=self.configuration_id[sensors],
            diff_in=self.discarded[sensors],
        )

    def _told(
        self, passages: Passages, sensor: Numbers, number: Numbers, at: Numbers, kind: ReportType
    ) -> Sent:
        """Reports made when so many of the passages had happened."""
        entries = passages.entries_of(sensor, number)
        total_in = self.total_in[sensor] + entries
        return self._reports(sensor, at, kind, total_in, self.total_out[sensor] + number - entries)

    def _reports(
        self,
        sensor: Numbers,
        at: Numbers,
        kind: int | Numbers,
        total_in: Numbers,
        total_out: Numbers,
    ) -> Sent:
        return rows(
            sensor,
            at=at,
            form=self._form[sensor],
            type=kind,
            total_in=total_in,
            total_out=total_out,
        )

    def _name_events(
        self, passages: Passages, sent: Sent, sensor: Numbers, number: Numbers
    ) -> None:
        """Messages of devices that send events say which way the one person went."""
        one = np.flatnonzero(sent["form"] == Form.EVENT)
        door, number = sensor[one], number[one]
        entered = passages.entries_of(door, number) > passages.entries_of(door, number - 1)
        sent["type"][one] = np.where(entered, EventType.ENTRY, EventType.EXIT)

    def _start_type(self, sensors: Numbers) -> Numbers:
        flagged = self._makings.flags_restarts[sensors]
        return np.where(flagged, ReportType.START, ReportType.TIMER)
