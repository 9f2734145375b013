"""What really happened, five minutes at a time, in the columns a pipeline is scored by."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.hives.sensors.fleet.passages import Passages

Numbers = NDArray[np.int64]

_TIME: Final = pa.timestamp("ms", "UTC")
_NAME: Final = pa.dictionary(pa.int32(), pa.string())
#: Of every sensor and slot in which there was something to tell. `lost_…` stands in the slot in
#: which it became certain that nobody will know: of a restart, or of an event that did not arrive.
COUNTS: Final = pa.schema(
    [
        ("slot", _TIME),
        ("sensor", _NAME),
        ("entries", pa.int32()),
        ("exits", pa.int32()),
        ("lost_in", pa.int32()),
        ("lost_out", pa.int32()),
    ]
)
#: Of every hive and slot: who was inside when the slot ended.
OCCUPANCY: Final = pa.schema([("slot", _TIME), ("hive_id", pa.int32()), ("occupancy", pa.int32())])
#: Person by person.
EVENTS: Final = pa.schema([("at", _TIME), ("sensor", _NAME), ("entry", pa.bool_())])
_EMPTY: Final[Numbers] = np.zeros(0, np.int64)


class Truth:
    """Of one window; empty, if it only has what was still on its way."""

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
                self._named(sensor),
                *(pa.array(each[slot, sensor], pa.int32()) for each in (entries, exits)),
                *(pa.array(each[slot, sensor], pa.int32()) for each in (lost_in, lost_out)),
            ],
            schema=COUNTS,
        )

    def occupancy(self) -> pa.RecordBatch:
        inside = np.array(self._occupancy, np.int32).reshape(-1, self._hives)
        slot, hive = np.indices(inside.shape)
        columns = [
            self._times(slot.ravel()),
            pa.array(hive.ravel() + 1, pa.int32()),
            pa.array(inside.ravel()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=OCCUPANCY)

    def events(self) -> pa.RecordBatch:
        """In order of time; takes as long as there are people."""
        lists = [each.listed() for each in self._passages]
        at, sensor = (np.concatenate([_EMPTY, *(each[n] for each in lists)]) for n in (0, 1))
        entry = np.concatenate([_EMPTY.astype(bool), *(each[2] for each in lists)])
        order = np.argsort(at, kind="stable")
        columns = [
            pa.array(at[order]).cast(_TIME),
            self._named(sensor[order]),
            pa.array(entry[order]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=EVENTS)

    def _times(self, slot: Numbers) -> pa.Array:
        starts = np.array([each.slot for each in self._passages], np.int64)
        return pa.array(starts[slot]).cast(_TIME)

    def _named(self, sensor: Numbers) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(sensor, pa.int32()), self._serials)

    def _table(self, slots: list[Numbers]) -> Numbers:
        return np.array(slots, np.int64).reshape(len(slots), len(self._serials))
