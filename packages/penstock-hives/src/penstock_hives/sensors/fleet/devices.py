"""Devices: their fixed traits, what they count, and when they send it.

A report is sent when the event threshold is reached or the reporting interval has passed; an event
is sent for each person. A restart happens at the beginning of a slot: unsent counts are lost,
totals restart at 0. Messages are rows of `SENT_DTYPE` until they are encoded; a status has its
start-up time and configuration id in the fields of totals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock_hives.arrays import Flags, Numbers
from penstock_hives.dates import SLOT_SECONDS
from penstock_hives.sensors.fleet.catalogue import SimulatedHive, SimulatedSensor, door_names
from penstock_hives.sensors.fleet.quirks import Quirks
from penstock_hives.sensors.fleet.visitors import SETTLE_MS, SLOT_MS, Passages, count_up
from penstock_hives.sensors.protocol.frame import (
    WRAP_POINTS,
    ByteOrder,
    FirmwareProfile,
    SensorProtocol,
)
from penstock_hives.sensors.protocol.messages import EventType, SensorConfiguration
from penstock_hives.sensors.protocol.report import ReportType

SentMessages = NDArray[np.void]

SENT_DTYPE: Final = np.dtype(
    [
        ("at", "i8"),  # sent, Unix ms of the true time
        ("arrives", "i8"),  # at the broker, Unix ms
        ("sensor", "i4"),
        ("utc_offset", "i4"),  # seconds
        ("total_in", "i8"),  # since the start, before wrapping
        ("total_out", "i8"),
        ("diff_in", "i4"),
        ("diff_out", "i4"),
        ("random", "u4"),  # for random choices later
        ("counter", "u2"),
        ("form", "u1"),
        ("type", "u1"),
        ("outcome", "u1"),
        ("dateless", "?"),
    ],
    align=True,  # for speed
)
_BYTES: Final = np.dtype(f"V{SENT_DTYPE.itemsize}")


class MessageForm(IntEnum):
    REPORT = 0
    REPORT2 = 1
    EVENT = 2
    STATUS = 3


class DeliveryOutcome(IntEnum):
    DELIVERED = 0
    LOST = 1
    DAMAGED = 2  #: arrives as an invalid message
    SCRAMBLED = 3  #: arrives with random totals
    DUPLICATED = 4
    LATE = 5


def make_messages(sensor: Numbers, **values: Any) -> SentMessages:
    made = np.zeros(len(sensor), SENT_DTYPE)
    made["sensor"] = sensor
    for name, value in values.items():
        made[name] = value
    return made


def concat_messages(parts: Sequence[SentMessages]) -> SentMessages:
    """NumPy copies records field by field, but bytes at once."""
    return np.concatenate([part.view(_BYTES) for part in parts]).view(SENT_DTYPE)


def take_messages(sent: SentMessages, rows: Numbers) -> SentMessages:
    return sent.view(_BYTES).take(rows).view(SENT_DTYPE)


def is_delivered(sent: SentMessages) -> Flags:
    """Which messages arrive unchanged, now or later."""
    outcome = sent["outcome"]
    delivered: Flags = (outcome == DeliveryOutcome.DELIVERED) | (
        outcome >= DeliveryOutcome.DUPLICATED
    )
    return delivered


#: The interval of devices that send events.
_NEVER: Final = 1 << 60
_MINUTE: Final = 60_000
#: Share of restarts at which the device does not know the time yet.
_DATELESS: Final = 0.2


class Devices:
    """The state of all devices: arrays by sensor."""

    def __init__(self, traits: DeviceTraits, quirks: Quirks, start: int) -> None:
        count = len(traits)
        self._traits = traits
        self._restart_chance = quirks.restarts * SLOT_SECONDS / 86_400
        self._ran_before = quirks.wraps
        self._events = traits.protocol == EVENT
        self._form = np.select(
            [traits.protocol == V2, self._events], [MessageForm.REPORT2, MessageForm.EVENT]
        )
        self._threshold = np.ones(count, np.int64)
        self._interval = np.full(count, _NEVER)
        self._status_interval = np.zeros(count, np.int64)
        self._pending = np.zeros(count, np.int64)
        self._last_sent = np.full(count, start)
        self._booted = np.full(count, start)
        self.discarded = np.zeros(count, np.int64)
        self.configuration_id = np.zeros(count, np.int64)
        self.total_in = traits.first_in.copy()
        self.total_out = traits.first_out.copy()
        self.configure(np.arange(count), SensorConfiguration())
        self._next_status = start + traits.stagger * self._status_interval // 1000

    def configure(self, sensors: Numbers, to: SensorConfiguration) -> None:
        """Timers of less than five minutes count as five minutes."""
        counting = sensors[~self._events[sensors]]
        self._threshold[counting] = max(to.event_threshold, 1)
        self._interval[counting] = max(to.report_interval_min * _MINUTE, SLOT_MS)
        self._status_interval[sensors] = max(to.status_interval_min * _MINUTE, SLOT_MS)
        self.configuration_id[sensors] = to.configuration_id

    def begin(self, slot: int, rng: np.random.Generator) -> SentMessages:
        """The first slot: nobody passes, and every device with totals reports them."""
        sensors = np.flatnonzero(~self._events)
        at = slot + rng.integers(0, SLOT_MS, len(sensors))
        self._last_sent[sensors] = at
        kind = ReportType.TIMER if self._ran_before else self._start_type(sensors)
        return self._reports(sensors, at, kind, self.total_in[sensors], self.total_out[sensors])

    def restart(self, slot: int, rng: np.random.Generator) -> tuple[Numbers, SentMessages]:
        """Sensors that restart at the beginning of the slot, and their reports."""
        again = np.flatnonzero(rng.random(len(self._pending)) < self._restart_chance)
        at = slot + rng.integers(0, SETTLE_MS, len(again))
        self.total_in[again] = self.total_out[again] = self._pending[again] = 0
        self._last_sent[again] = self._booted[again] = self._next_status[again] = at
        reporting = ~self._events[again]
        sensors, zero = again[reporting], np.zeros(reporting.sum(), np.int64)
        sent = self._reports(sensors, at[reporting], self._start_type(sensors), zero, zero)
        sent["dateless"] = rng.random(len(sent)) < _DATELESS
        return again, sent

    def count(self, passages: Passages) -> list[SentMessages]:
        """Reports by timer and by threshold, in this order."""
        total = passages.total
        due = self._last_sent + self._interval
        timed = np.flatnonzero(due < passages.slot + SLOT_MS)
        when = np.maximum(due[timed], passages.slot)
        passed = passages.up_to(timed, when)
        # A report by threshold restarts the timer.
        quiet = self._pending[timed] + passed < self._threshold[timed]
        timed, when, passed = timed[quiet], when[quiet], passed[quiet]
        by_timer = self._reports_after(passages, timed, passed, when, ReportType.TIMER)
        self._last_sent[timed] = when

        reported = -self._pending
        reported[timed] = passed
        count, self._pending = np.divmod(total - reported, self._threshold)
        sensor = np.repeat(np.arange(len(total)), count)
        number = reported[sensor] + self._threshold[sensor] * (count_up(count) + 1)
        at = passages.at(sensor, number)
        by_threshold = self._reports_after(passages, sensor, number, at, ReportType.EVENTS)
        self._set_directions(passages, by_threshold, sensor, number)
        self._last_sent[sensor] = at  # the last of several
        self.total_in += passages.entries
        self.total_out += passages.exits
        return [by_timer, by_threshold]

    def statuses(self, slot: int) -> SentMessages:
        sensors = np.flatnonzero(self._next_status < slot + SLOT_MS)
        at = np.maximum(self._next_status[sensors], slot)
        self._next_status[sensors] = at + self._status_interval[sensors]
        return self.status_of(sensors, at)

    def status_of(self, sensors: Numbers, at: Numbers) -> SentMessages:
        return make_messages(
            sensors,
            at=at,
            form=MessageForm.STATUS,
            total_in=self._booted[sensors] // 1000,
            total_out=self.configuration_id[sensors],
            diff_in=self.discarded[sensors],
        )

    def _reports_after(
        self, passages: Passages, sensor: Numbers, number: Numbers, at: Numbers, kind: ReportType
    ) -> SentMessages:
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
    ) -> SentMessages:
        return make_messages(
            sensor,
            at=at,
            form=self._form[sensor],
            type=kind,
            total_in=total_in,
            total_out=total_out,
        )

    def _set_directions(
        self, passages: Passages, sent: SentMessages, sensor: Numbers, number: Numbers
    ) -> None:
        """An event has the direction of its passage."""
        one = np.flatnonzero(sent["form"] == MessageForm.EVENT)
        door, number = sensor[one], number[one]
        entered = passages.entries_of(door, number) > passages.entries_of(door, number - 1)
        sent["type"][one] = np.where(entered, EventType.ENTRY, EventType.EXIT)

    def _start_type(self, sensors: Numbers) -> Numbers:
        flagged = self._traits.flags_restarts[sensors]
        return np.where(flagged, ReportType.START, ReportType.TIMER)


_PROTOCOLS: Final = (SensorProtocol.V1, SensorProtocol.V2, SensorProtocol.EVENT)
V1, V2, EVENT = range(3)
_DAY: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class DeviceTraits:
    hive: Numbers  #: index in the list
    protocol: Numbers
    little: Flags
    modulus: Numbers  #: of totals: the wrap point plus one
    flags_restarts: Flags
    swapped: Flags
    clock_error: Numbers  #: ms
    transit: Numbers  #: ms from the device to the broker
    stagger: Numbers  #: thousandths; spreads the statuses
    first_in: Numbers  #: totals before the start
    first_out: Numbers

    def __len__(self) -> int:
        return len(self.hive)


def draw_traits(hives: Sequence[SimulatedHive], quirks: Quirks, seed: int) -> DeviceTraits:
    rng = np.random.default_rng([seed, 3])
    hive = np.repeat(np.arange(len(hives)), [hive.doors for hive in hives])
    count = len(hive)
    draw = rng.random(count)
    protocol = np.where(draw < quirks.v2, V2, np.where(draw < quirks.v2 + quirks.event, EVENT, V1))
    wrap_at = rng.choice(WRAP_POINTS, count) if quirks.wraps else np.full(count, WRAP_POINTS[0])
    modulus = np.where(protocol == V2, 1 << 32, wrap_at + 1)
    before = rng.integers(0, 1 << 16, (2, count)) % modulus * quirks.wraps
    # Everything is drawn, needed or not, so that no quirk changes the effect of another.
    return DeviceTraits(
        hive=hive,
        protocol=protocol,
        little=(rng.random(count) < quirks.little_endian) & (protocol != V2),
        modulus=modulus,
        flags_restarts=(rng.random(count) < quirks.flagged_restarts) | (protocol == V2),
        swapped=rng.random(count) < quirks.swapped,
        clock_error=_clock_errors(count, quirks.wrong_clocks, rng),
        transit=rng.integers(80, 900, count),
        stagger=rng.integers(0, 1000, count),
        first_in=before[0],
        first_out=before[1],
    )


def _clock_errors(count: int, share: float, rng: np.random.Generator) -> Numbers:
    """Two in three wrong clocks are minutes off; the rest more than half a day, up to a year."""
    wrong = rng.random(count) < share
    near = rng.integers(1, 10, count, endpoint=True) * _MINUTE
    far = rng.integers(14 * 60 * _MINUTE, 365 * _DAY, count)
    error = np.where(rng.random(count) < 2 / 3, near, far)
    behind = rng.random(count) < 0.5
    return np.where(wrong, np.where(behind, -error, error), 0)


def register_sensors(
    hives: Sequence[SimulatedHive], traits: DeviceTraits, quirks: Quirks
) -> tuple[SimulatedSensor, ...]:
    doors = [(hive, door) for hive in hives for door in door_names(hive)]
    return tuple(
        SimulatedSensor(
            id=number + 1,
            hive_id=hive.id,
            serial=f"s{number + 1:05d}",
            name=f"{hive.name}, {door}",
            protocol=_PROTOCOLS[traits.protocol[number]],
            profile=_profile(traits, quirks, number),
            direction_swapped=bool(traits.swapped[number]),
        )
        for number, (hive, door) in enumerate(doors)
    )


def _profile(traits: DeviceTraits, quirks: Quirks, number: int) -> FirmwareProfile:
    known = traits.protocol[number] == V1 and not quirks.unknown_wraps
    return FirmwareProfile(
        byte_order=ByteOrder.LITTLE if traits.little[number] else ByteOrder.BIG,
        wrap_at=int(traits.modulus[number]) - 1 if known else None,
        plus_32=quirks.plus_32,
        event_counter=bool(traits.protocol[number] == EVENT),
    )
