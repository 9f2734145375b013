"""Ground truth: what happened in each slot, and a ledger of counts by sensor.

*Counted* is what the device saw. *Lost* is what no delivered frame carries: counts that a restart
deleted before they were reported, and events that did not arrive. *Known* is what a perfect reader
of all delivered frames knows. The rest is *open*: counted and not reported yet.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from penstock_hives.arrays import Numbers
from penstock_hives.sensors.fleet.devices import MessageForm, SentMessages, is_delivered
from penstock_hives.sensors.fleet.visitors import Passages
from penstock_hives.sensors.protocol.messages import EventType

_TIME: Final = pa.timestamp("ms", "UTC")
_NAME: Final = pa.dictionary(pa.int32(), pa.string())
#: By sensor and slot with counts. `lost_…` is in the slot of the loss: of a restart, or of an event
#: that did not arrive.
TRUE_COUNT_SCHEMA: Final = pa.schema(
    [
        ("slot", _TIME),
        ("sensor", _NAME),
        ("entries", pa.int32()),
        ("exits", pa.int32()),
        ("lost_in", pa.int32()),
        ("lost_out", pa.int32()),
    ]
)
#: By hive and slot: occupancy at its end.
TRUE_OCCUPANCY_SCHEMA: Final = pa.schema(
    [("slot", _TIME), ("hive_id", pa.int32()), ("occupancy", pa.int32())]
)
#: By passage.
TRUE_EVENT_SCHEMA: Final = pa.schema([("at", _TIME), ("sensor", _NAME), ("entry", pa.bool_())])
_EMPTY: Final[Numbers] = np.zeros(0, np.int64)


class GroundTruth:
    """Of one window; empty for the window of frames in transit."""

    def __init__(self, serials: pa.Array, hives: int) -> None:
        self._serials = serials
        self._hives = hives
        self._passages: list[Passages] = []
        self._lost: list[Numbers] = []
        self._occupancy: list[Numbers] = []

    def add(self, passages: Passages, lost: Numbers, occupancy: Numbers) -> None:
        self._passages.append(passages)
        self._lost.append(lost)
        self._occupancy.append(occupancy)

    def counts(self) -> pa.RecordBatch:
        entries = self._table([each.entries for each in self._passages])
        exits = self._table([each.exits for each in self._passages])
        lost_in = self._table([each[0] for each in self._lost])
        lost_out = self._table([each[1] for each in self._lost])
        slot, sensor = np.nonzero(entries | exits | lost_in | lost_out)
        return pa.RecordBatch.from_arrays(
            [
                self._times(slot),
                self._serial_column(sensor),
                *(pa.array(each[slot, sensor], pa.int32()) for each in (entries, exits)),
                *(pa.array(each[slot, sensor], pa.int32()) for each in (lost_in, lost_out)),
            ],
            schema=TRUE_COUNT_SCHEMA,
        )

    def occupancy(self) -> pa.RecordBatch:
        inside = np.array(self._occupancy, np.int32).reshape(-1, self._hives)
        slot, hive = np.indices(inside.shape)
        columns = [
            self._times(slot.ravel()),
            pa.array(hive.ravel() + 1, pa.int32()),
            pa.array(inside.ravel()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=TRUE_OCCUPANCY_SCHEMA)

    def events(self) -> pa.RecordBatch:
        """In order of time; a row for each person."""
        lists = [each.listed() for each in self._passages]
        at, sensor = (np.concatenate([_EMPTY, *(each[n] for each in lists)]) for n in (0, 1))
        entry = np.concatenate([_EMPTY.astype(bool), *(each[2] for each in lists)])
        order = np.argsort(at, kind="stable")
        columns = [
            pa.array(at[order]).cast(_TIME),
            self._serial_column(sensor[order]),
            pa.array(entry[order]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=TRUE_EVENT_SCHEMA)

    def _times(self, slot: Numbers) -> pa.Array:
        starts = np.array([each.slot for each in self._passages], np.int64)
        return pa.array(starts[slot]).cast(_TIME)

    def _serial_column(self, sensor: Numbers) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(sensor, pa.int32()), self._serials)

    def _table(self, slots: list[Numbers]) -> Numbers:
        return np.array(slots, np.int64).reshape(len(slots), len(self._serials))


class SensorLedger:
    def __init__(self, first_in: Numbers, first_out: Numbers) -> None:
        nothing = np.zeros_like(first_in)
        self._counted = np.stack([nothing, nothing])
        self._lost = np.stack([nothing, nothing])
        #: Counts that are known or lost.
        self._settled = np.stack([nothing, nothing])
        #: Counts here when the device's totals were 0.
        self._zero = -np.stack([first_in, first_out])

    def record_restarts(self, sensors: Numbers) -> Numbers:
        """Returns the unreported counts that are lost, in and out."""
        lost = np.zeros_like(self._lost)
        lost[:, sensors] = self._counted[:, sensors] - self._settled[:, sensors]
        self._lost += lost
        self._settled += lost
        self._zero[:, sensors] = self._counted[:, sensors]
        return lost

    def record_passages(self, passages: Passages) -> None:
        self._counted[0] += passages.entries
        self._counted[1] += passages.exits

    def record_sent(self, sent: SentMessages) -> Numbers:
        """Messages with outcomes, in the order of sending; returns the counts lost with them."""
        arrived = is_delivered(sent)
        report = np.flatnonzero(arrived & (sent["form"] <= MessageForm.REPORT2))
        sensor = sent["sensor"][report]
        # The last report of a sensor wins; its totals are the greatest.
        self._settled[0, sensor] = self._zero[0, sensor] + sent["total_in"][report]
        self._settled[1, sensor] = self._zero[1, sensor] + sent["total_out"][report]
        event = np.flatnonzero(sent["form"] == MessageForm.EVENT)
        lost = np.zeros_like(self._lost)
        if len(event):
            way = np.where(sent["type"][event] == EventType.ENTRY, 0, 1)
            np.add.at(self._settled, (way, sent["sensor"][event]), 1)
            missing = ~arrived[event]
            np.add.at(lost, (way[missing], sent["sensor"][event][missing]), 1)
            self._lost += lost
        return lost

    def to_arrow(self, serials: pa.Array) -> pa.RecordBatch:
        figures = {
            "counted": self._counted,
            "known": self._settled - self._lost,
            "lost": self._lost,
            "open": self._counted - self._settled,
        }
        columns = {
            f"{name}_{way}": pa.array(figure[direction])
            for name, figure in figures.items()
            for direction, way in enumerate(("in", "out"))
        }
        return pa.RecordBatch.from_pydict({"sensor": serials, **columns})
