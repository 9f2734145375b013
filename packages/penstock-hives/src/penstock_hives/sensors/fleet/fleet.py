"""The fleet: hives, sensors, and time that passes five minutes at a time.

    fleet = Fleet(seed=7, hives=50, start=datetime(2026, 1, 5, tzinfo=UTC))
    for frame in fleet.frames(until=datetime(2026, 1, 6, tzinfo=UTC)):
        publish(frame.topic, frame.body)

A fleet is a pure function of its arguments and of the configurations it was sent: frames come in
the order in which they arrive at a broker, the same ones whether asked for one by one or in windows
of any length. Time goes forward only; whoever wants to see it again makes the same fleet again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.errors import NotFound, PreconditionFailed
from penstock_hives.arrays import Numbers
from penstock_hives.sensors.fleet import catalogue
from penstock_hives.sensors.fleet.catalogue import SimulatedHive, SimulatedSensor
from penstock_hives.sensors.fleet.devices import Devices, draw_traits, register_sensors
from penstock_hives.sensors.fleet.encoder import FrameEncoder, FramePacker, MessageCounters
from penstock_hives.sensors.fleet.ground_truth import GroundTruth, SensorLedger
from penstock_hives.sensors.fleet.network import SensorNetwork, duplicate_messages
from penstock_hives.sensors.fleet.quirks import Quirks
from penstock_hives.sensors.fleet.sent_messages import (
    SENT_DTYPE,
    DeliveryOutcome,
    SentMessages,
    concat_messages,
    take_messages,
)
from penstock_hives.sensors.fleet.visitors import (
    SLOT_MS,
    SLOT_SECONDS,
    Passages,
    Visitors,
    draw_share,
)
from penstock_hives.sensors.protocol.configuration import SensorConfiguration

#: An hour: enough rows to be worth a batch, few enough to be made in an instant.
WINDOW_SLOTS: Final = 12
#: How a moment and a sensor fit into one number to sort by.
_SENSOR_BITS: Final = 24
_END: Final = 1 << 62


class SensorFrame(NamedTuple):
    """A message as it arrives at the broker."""

    at: int  #: Unix ms
    topic: str
    body: bytes


@dataclass(frozen=True, slots=True)
class FrameWindow:
    """What arrived in a stretch of time, and what really happened in it."""

    start: datetime
    stop: datetime
    frames: pa.RecordBatch  #: timestamp, routing_key, body, as a stream keeps them
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
    ) -> None:
        """So many hives, or as many as it takes to have so many sensors."""
        quirks = quirks or Quirks()
        if start.tzinfo is None:
            raise PreconditionFailed("a fleet starts at a moment: give the time a zone")
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
        self._devices = Devices(traits, quirks, begin)
        self._line = SensorNetwork(traits, quirks)
        self._ledger = SensorLedger(traits.first_in, traits.first_out)
        self._numbering = MessageCounters(len(serials))
        self._packer = FramePacker(serials, FrameEncoder(traits, quirks.plus_32, begin))
        self._on_its_way: SentMessages = np.zeros(0, SENT_DTYPE)

    @property
    def now(self) -> datetime:
        """Up to when it has been simulated; five minutes are never cut."""
        return _moment(self._slot)

    def sensor(self, serial: str) -> SimulatedSensor:
        found = self._by_serial.get(serial)
        if found is None:
            raise NotFound(f"no sensor {serial!r} in this fleet")
        return found

    def windows(
        self, until: datetime | None = None, slots: int = WINDOW_SLOTS
    ) -> Iterator[FrameWindow]:
        """From now until then, or for ever; what is still on its way at the end comes last."""
        end = None if until is None else int(until.timestamp() * 1000)
        while end is None or self._slot < end:
            left = slots if end is None else -(-(end - self._slot) // SLOT_MS)
            yield self._window(min(slots, left))
        if len(self._on_its_way):
            rest = _in_order(self._on_its_way, np.arange(len(self._on_its_way)))
            self._on_its_way = np.zeros(0, SENT_DTYPE)
            last = _moment(int(rest["arrives"][-1]) + 1)
            yield FrameWindow(self.now, last, self._packer.pack(rest), self._truth())

    def frames(
        self, until: datetime | None = None, slots: int = WINDOW_SLOTS
    ) -> Iterator[SensorFrame]:
        """The same, one by one."""
        for window in self.windows(until, slots):
            yield from window

    def configure(
        self, serial: str, configuration: SensorConfiguration, at: datetime
    ) -> SensorFrame:
        """Give a sensor its orders. They hold from the next five minutes on; the status that
        acknowledges them is the answer, to be sent at once."""
        sensors = np.array([self.sensor(serial).id - 1])
        self._devices.configure(sensors, configuration)
        status = self._devices.status_of(sensors, np.array([int(at.timestamp() * 1000)]))
        status["arrives"] = status["at"]
        return next(iter(FrameWindow(at, at, self._packer.pack(status), self._truth())))

    def ledger(self) -> pa.RecordBatch:
        """By sensor, from the start: counted, known, lost and open, in and out."""
        return self._ledger.to_arrow(self._serials)

    def _truth(self) -> GroundTruth:
        return GroundTruth(self._serials, len(self.hives))

    def _window(self, slots: int) -> FrameWindow:
        start = self.now
        truth = self._truth()
        sent = concat_messages([self._step(truth) for _ in range(slots)])
        self._numbering.number(sent)
        coming = concat_messages([self._on_its_way, duplicate_messages(sent), sent])
        lost = coming["fate"] == DeliveryOutcome.LOST
        here = coming["arrives"] < self._slot
        self._on_its_way = take_messages(coming, np.flatnonzero(~lost & ~here))
        arrived = _in_order(coming, np.flatnonzero(~lost & here))
        return FrameWindow(start, self.now, self._packer.pack(arrived), truth)

    def _step(self, truth: GroundTruth) -> SentMessages:
        """Five minutes of everything."""
        slot, second = self._slot, self._slot // 1000
        rng = np.random.default_rng([self._seed, 4, second])
        offsets = self._visitors.utc_offsets(second)
        if slot == self._begin:
            entries = exits = np.zeros(len(self.sensors), np.int64)
            passages = Passages.draw(slot, entries, exits, rng)
            sent = self._devices.begin(slot, rng)
            self._line.deliver_all(sent)  # for from these everything is counted
            lost = self._ledger.told(sent)
        else:
            passages = self._passages(slot, offsets, rng)
            again, starts = self._devices.restart(slot, rng)
            lost = self._ledger.restarted(again)
            counted = self._devices.count(passages)
            sent = concat_messages([starts, *counted, self._devices.statuses(slot)])
            self._line.carry(sent, slot, rng)
            self._ledger.counted(passages)
            lost += self._ledger.told(sent)
        sent["utc_offset"] = offsets[self._hive_of[sent["sensor"]]]
        truth.add(passages, lost, self._visitors.occupancy)
        self._slot += SLOT_MS
        return sent

    def _passages(self, slot: int, offsets: Numbers, rng: np.random.Generator) -> Passages:
        """Who was seen: devices miss some."""
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


def _in_order(sent: SentMessages, places: Numbers) -> SentMessages:
    """By arrival; at the same moment by sensor, so that nothing depends on how it was cut."""
    arrives = sent["arrives"][places]
    key = arrives - arrives.min(initial=_END) << _SENSOR_BITS | sent["sensor"][places]
    return take_messages(sent, places[np.argsort(key, kind="stable")])


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
