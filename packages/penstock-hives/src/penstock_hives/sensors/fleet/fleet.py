"""The fleet: hives, sensors, and time that passes five minutes at a time.

    fleet = Fleet(seed=7, hives=50, start=datetime(2026, 1, 5, tzinfo=UTC))
    for frame in fleet.frames(until=datetime(2026, 1, 6, tzinfo=UTC)):
        publish(frame.topic, frame.body)

A fleet is a pure function of its arguments and of the configurations it was sent. Frames are in the
order of their arrival at a broker, the same one by one or in windows of any length. Time only goes
forward; to see it again, make the same fleet again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.core.errors import NotFound, PreconditionFailed
from penstock_hives.arrays import Numbers
from penstock_hives.dates import SLOT_SECONDS
from penstock_hives.sensors.fleet import catalogue
from penstock_hives.sensors.fleet.catalogue import SimulatedHive, SimulatedSensor
from penstock_hives.sensors.fleet.devices import (
    SENT_DTYPE,
    DeliveryOutcome,
    Devices,
    DeviceTraits,
    MessageForm,
    SentMessages,
    concat_messages,
    draw_traits,
    register_sensors,
    take_messages,
)
from penstock_hives.sensors.fleet.encoder import FrameEncoder, FramePacker, MessageCounters
from penstock_hives.sensors.fleet.ground_truth import GroundTruth, SensorLedger
from penstock_hives.sensors.fleet.quirks import Quirks
from penstock_hives.sensors.fleet.visitors import SLOT_MS, Passages, Visitors, draw_share
from penstock_hives.sensors.protocol.messages import SensorConfiguration

#: An hour: enough rows for a batch, few enough to simulate quickly.
WINDOW_SLOTS: Final = 12
#: A time and a sensor in one number, for sorting.
_SENSOR_BITS: Final = 24
_END: Final = 1 << 62


class SensorFrame(NamedTuple):
    """A message as it arrives at the broker."""

    at: int  #: Unix ms
    topic: str
    body: bytes


@dataclass(frozen=True, slots=True)
class FrameWindow:
    """The frames that arrived in a period, and the ground truth of that period."""

    start: datetime
    stop: datetime
    frames: pa.RecordBatch  #: timestamp, routing_key, body, as in a stream
    truth: GroundTruth

    def __iter__(self) -> Iterator[SensorFrame]:
        times = self.frames["timestamp"].cast(pa.int64()).to_pylist()
        keys = self.frames["routing_key"]
        topics = [key.replace(".", "/") for key in keys.dictionary.to_pylist()]
        bodies = self.frames["body"].to_pylist()
        for at, key, body in zip(times, keys.indices.to_pylist(), bodies, strict=True):
            yield SensorFrame(at, topics[key], body)


class Fleet:
    def __init__(
        self,
        *,
        start: datetime,
        seed: int = 0,
        hives: int = 50,
        sensors: int | None = None,
        quirks: Quirks | None = None,
        inside: Sequence[int] = (),
    ) -> None:
        """`hives` hives, or as many as have `sensors` sensors; `inside` people in them, or none."""
        quirks = quirks or Quirks()
        if start.tzinfo is None:
            raise PreconditionFailed(f"start must have a time zone, got {start.isoformat()}")
        self.hives = _hives(hives, sensors)
        traits = draw_traits(self.hives, quirks, seed)
        self.sensors = register_sensors(self.hives, traits, quirks)
        begin = int(start.timestamp()) // SLOT_SECONDS * SLOT_MS
        serials = [sensor.serial for sensor in self.sensors]
        self._by_serial = {sensor.serial: sensor for sensor in self.sensors}
        self._serials = pa.array(serials)
        self._seed = seed
        self._begin = self._slot = begin
        self._missed = quirks.missed
        self._hive_of = traits.hive
        self._visitors = Visitors(self.hives, seed)
        if len(inside):
            self._visitors.occupancy = np.array(inside, np.int64)
        self._devices = Devices(traits, quirks, begin)
        self._network = SensorNetwork(traits, quirks)
        self._ledger = SensorLedger(traits.first_in, traits.first_out)
        self._counters = MessageCounters(len(serials))
        self._packer = FramePacker(serials, FrameEncoder(traits, quirks.plus_32, begin))
        self._in_transit: SentMessages = np.zeros(0, SENT_DTYPE)

    @property
    def now(self) -> datetime:
        """The end of the simulated time, a multiple of five minutes."""
        return _moment(self._slot)

    def sensor(self, serial: str) -> SimulatedSensor:
        found = self._by_serial.get(serial)
        if found is None:
            raise NotFound(f"no sensor {serial!r} in this fleet")
        return found

    def windows(
        self, until: datetime | None = None, slots: int = WINDOW_SLOTS
    ) -> Iterator[FrameWindow]:
        """From now until then, or for ever; frames in transit at the end are the last window."""
        end = None if until is None else int(until.timestamp() * 1000)
        while end is None or self._slot < end:
            left = slots if end is None else -(-(end - self._slot) // SLOT_MS)
            yield self._window(min(slots, left))
        if len(self._in_transit):
            rest = _in_order(self._in_transit, np.arange(len(self._in_transit)))
            self._in_transit = np.zeros(0, SENT_DTYPE)
            last = _moment(int(rest["arrives"][-1]) + 1)
            yield FrameWindow(self.now, last, self._packer.pack(rest), self._truth())

    def frames(
        self, until: datetime | None = None, slots: int = WINDOW_SLOTS
    ) -> Iterator[SensorFrame]:
        """The frames of `windows`, one by one."""
        for window in self.windows(until, slots):
            yield from window

    def configure(
        self, serial: str, configuration: SensorConfiguration, at: datetime
    ) -> SensorFrame:
        """Configure a sensor from the next slot on; returns the status that acknowledges it."""
        sensors = np.array([self.sensor(serial).id - 1])
        self._devices.configure(sensors, configuration)
        status = self._devices.status_of(sensors, np.array([int(at.timestamp() * 1000)]))
        status["arrives"] = status["at"]
        return next(iter(FrameWindow(at, at, self._packer.pack(status), self._truth())))

    def ledger(self) -> pa.RecordBatch:
        """By sensor, since the start: counted, known, lost and open, in and out."""
        return self._ledger.to_arrow(self._serials)

    def _truth(self) -> GroundTruth:
        return GroundTruth(self._serials, len(self.hives))

    def _window(self, slots: int) -> FrameWindow:
        start = self.now
        truth = self._truth()
        sent = concat_messages([self._step(truth) for _ in range(slots)])
        self._counters.number(sent)
        messages = concat_messages([self._in_transit, duplicate_messages(sent), sent])
        lost = messages["outcome"] == DeliveryOutcome.LOST
        arrived = messages["arrives"] < self._slot
        self._in_transit = take_messages(messages, np.flatnonzero(~lost & ~arrived))
        frames = self._packer.pack(_in_order(messages, np.flatnonzero(~lost & arrived)))
        return FrameWindow(start, self.now, frames, truth)

    def _step(self, truth: GroundTruth) -> SentMessages:
        slot, second = self._slot, self._slot // 1000
        rng = np.random.default_rng([self._seed, 4, second])
        offsets = self._visitors.utc_offsets(second)
        if slot == self._begin:
            entries = exits = np.zeros(len(self.sensors), np.int64)
            passages = Passages.draw(slot, entries, exits, rng)
            sent = self._devices.begin(slot, rng)
            self._network.deliver_all(sent)  # counting starts from these
            lost = self._ledger.record_sent(sent)
        else:
            passages = self._passages(slot, offsets, rng)
            again, starts = self._devices.restart(slot, rng)
            lost = self._ledger.record_restarts(again)
            counted = self._devices.count(passages)
            sent = concat_messages([starts, *counted, self._devices.statuses(slot)])
            self._network.deliver(sent, slot, rng)
            self._ledger.record_passages(passages)
            lost += self._ledger.record_sent(sent)
        sent["utc_offset"] = offsets[self._hive_of[sent["sensor"]]]
        truth.add(passages, lost, self._visitors.occupancy)
        self._slot += SLOT_MS
        return sent

    def _passages(self, slot: int, offsets: Numbers, rng: np.random.Generator) -> Passages:
        """The passages that devices detect."""
        entries, exits = self._visitors.step(slot // 1000, offsets, rng)
        if self._missed:
            for passed in (entries, exits):
                missed = draw_share(passed, self._missed, rng)
                passed -= missed
                self._devices.discarded += missed
        return Passages.draw(slot, entries, exits, rng)


def _hives(count: int, sensors: int | None) -> tuple[SimulatedHive, ...]:
    if sensors is None:
        return tuple(islice(catalogue.simulated_hives(), count))
    chosen: list[SimulatedHive] = []
    for hive in catalogue.simulated_hives():
        if sensors <= 0:
            break
        chosen.append(replace(hive, doors=min(hive.doors, sensors)))
        sensors -= hive.doors
    return tuple(chosen)


def _in_order(sent: SentMessages, rows: Numbers) -> SentMessages:
    """By arrival and then by sensor, so that the order does not depend on windows."""
    arrives = sent["arrives"][rows]
    key = arrives - arrives.min(initial=_END) << _SENSOR_BITS | sent["sensor"][rows]
    return take_messages(sent, rows[np.argsort(key, kind="stable")])


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


_OUTAGE: Final = (5 * 60_000, 2 * 3_600_000)
#: Delay of a late frame, ms: enough to arrive after later frames.
_LATENESS: Final = (2_000, 600_000)
_SECOND_COPY: Final = (500, 60_000)


class SensorNetwork:
    """Loses, damages, duplicates and delays messages. Devices do not resend."""

    def __init__(self, traits: DeviceTraits, quirks: Quirks) -> None:
        self._transit = traits.transit
        self._outages = quirks.outages * SLOT_SECONDS / 86_400
        self._until = np.zeros(len(traits), np.int64)
        order = (
            DeliveryOutcome.LOST,
            DeliveryOutcome.DAMAGED,
            DeliveryOutcome.SCRAMBLED,
            DeliveryOutcome.DUPLICATED,
            DeliveryOutcome.LATE,
        )
        self._outcomes = np.array(order, np.uint8)
        self._chances = np.cumsum(
            [quirks.loss, quirks.corrupt, quirks.scrambled, quirks.duplicates, quirks.late]
        )

    def deliver_all(self, sent: SentMessages) -> None:
        sent["arrives"] = sent["at"] + self._transit[sent["sensor"]]

    def deliver(self, sent: SentMessages, slot: int, rng: np.random.Generator) -> None:
        """Set the outcomes of messages sent in the slot (ms)."""
        if self._outages:
            begin = np.flatnonzero(rng.random(len(self._until)) < self._outages)
            self._until[begin] = slot + rng.integers(*_OUTAGE, len(begin))
        self.deliver_all(sent)
        sent["random"] = rng.integers(0, 1 << 32, len(sent), np.uint32)
        draw = rng.random(len(sent))
        affected = np.flatnonzero(draw < self._chances[-1])
        outcome = self._outcomes[np.searchsorted(self._chances, draw[affected], "right")]
        # Only a v1 report with wrong totals is still a valid message.
        valid = sent["form"][affected] == MessageForm.REPORT
        outcome[(outcome == DeliveryOutcome.SCRAMBLED) & ~valid] = DeliveryOutcome.DAMAGED
        sent["outcome"][affected] = outcome
        sent["outcome"][sent["at"] < self._until[sent["sensor"]]] = DeliveryOutcome.LOST
        late = np.flatnonzero(sent["outcome"] == DeliveryOutcome.LATE)
        sent["arrives"][late] += _between(_LATENESS, sent["random"][late])


def duplicate_messages(sent: SentMessages) -> SentMessages:
    again = take_messages(sent, np.flatnonzero(sent["outcome"] == DeliveryOutcome.DUPLICATED))
    again["arrives"] += _between(_SECOND_COPY, again["random"])
    return again


def _between(bounds: tuple[int, int], random: NDArray[np.uint32]) -> Numbers:
    low, high = bounds
    return low + random.astype(np.int64) % (high - low)
