"""State of sensors between batches: rows in PostgreSQL, columns here.

The state that only the rules need (rate histogram, suspect report, last events) is one column of
bytes, `memory`:

    header, fixed size; its first byte is the version
    pairs, as many as the header says: rate bucket (u8) and count (u32)
    bodies of the last events, eight bytes each

Version 1 has a shorter header; missing fields are unknown. An unknown version raises an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from penstock.core.errors import PreconditionFailed
from penstock_hives.arrays import Bytes, Flags, Numbers
from penstock_hives.occupancy.event_rates import EventRates
from penstock_hives.sensors.columnar.frames import FrameBodies

SENSOR_STATE_SCHEMA: Final = pa.schema(
    [
        ("sensor", pa.string()),
        ("sensor_id", pa.int64()),
        ("total_in", pa.int64()),  # of the last accepted report; null before it
        ("total_out", pa.int64()),
        ("device_time", pa.timestamp("us")),  # of that report, by the device's clock
        ("received_at", pa.timestamp("us", "UTC")),  # of the last message, accepted or not
        ("at", pa.timestamp("us", "UTC")),  # the latest event time
        ("rate_p99", pa.float64()),
        ("sum_in", pa.int64()),  # all events so far, corrected for swapped mounting
        ("sum_out", pa.int64()),
        ("counter", pa.int32()),
        ("flags", pa.int32()),  # quality of the last message
        ("memory", pa.binary()),
    ]
)
#: The clock of a report without a date.
NO_CLOCK: Final = np.iinfo(np.int64).min
NO_VALUE: Final = -1
#: The fields of a reading, in the order of `counter_rules.CounterReading`.
READING_FIELDS: Final = ("total_in", "total_out", "clock", "utc", "received")


@dataclass(slots=True)
class ReadingColumns:
    """A `CounterReading` for each of many sensors; a total of -1 is no reading."""

    total_in: Numbers
    total_out: Numbers
    clock: Numbers
    utc: Numbers
    received: Numbers

    @classmethod
    def none(cls, sensors: int) -> ReadingColumns:
        return cls(*(np.full(sensors, NO_VALUE, np.int64) for _ in READING_FIELDS))

    def take(self, rows: Numbers) -> ReadingColumns:
        return ReadingColumns(*(getattr(self, name)[rows] for name in READING_FIELDS))

    def put(self, rows: Numbers, other: ReadingColumns, other_rows: Numbers) -> None:
        for name in READING_FIELDS:
            getattr(self, name)[rows] = getattr(other, name)[other_rows]


#: Fields of `counter_rules.CounterState` that are stored as they are.
COUNTER_FIELDS: Final = ("began", "assumed_in", "assumed_out", "surplus_in", "surplus_out")


@dataclass(slots=True)
class SensorStates:
    """A row for each sensor, updated in place."""

    last: ReadingColumns
    suspect: ReadingColumns
    former: ReadingColumns
    boot: Numbers  #: the last start of the device by its statuses; -1: none
    began: Numbers
    assumed_in: Numbers
    assumed_out: Numbers
    surplus_in: Numbers
    surplus_out: Numbers
    settled: Flags
    seen: Numbers
    learned_top: Numbers
    order: Numbers  #: proved byte order: 1 big, 2 little; 0 none
    rates: EventRates
    sum_in: Numbers
    sum_out: Numbers
    counter: Numbers  #: -1: none yet
    counter_utc: Numbers
    received: Numbers
    at: Numbers
    flags: Numbers
    #: The last events of the sensors that send events, by sensor and then in order, and their rows.
    recent: NDArray[np.uint64]
    recent_of: Numbers

    @classmethod
    def unknown(cls, sensors: int) -> SensorStates:
        def column(value: int) -> Numbers:
            return np.full(sensors, value, np.int64)

        return cls(
            last=ReadingColumns.none(sensors),
            suspect=ReadingColumns.none(sensors),
            former=ReadingColumns.none(sensors),
            boot=column(NO_VALUE),
            began=column(NO_VALUE),
            assumed_in=column(0),
            assumed_out=column(0),
            surplus_in=column(0),
            surplus_out=column(0),
            settled=np.zeros(sensors, bool),
            seen=column(0),
            learned_top=column(NO_VALUE),
            order=column(0),
            rates=EventRates.unknown(sensors),
            sum_in=column(0),
            sum_out=column(0),
            counter=column(NO_VALUE),
            counter_utc=column(0),
            received=column(NO_VALUE),
            at=column(NO_VALUE),
            flags=column(0),
            recent=np.zeros(0, np.uint64),
            recent_of=np.zeros(0, np.int64),
        )

    def __len__(self) -> int:
        return len(self.seen)


MEMORY_VERSION: Final = 2
_LAST: Final = ("clock", "utc", "received")
_OWN: Final = ("seen", "learned_top", "counter_utc")
_OPEN: Final = ("since", "events")
_LATER: Final = ("boot", *COUNTER_FIELDS)  #: since version 2
_FIRST: Final = (
    [("version", "u1"), ("pairs", "u1"), ("settled", "?"), ("order", "u1")]
    + [(f"last_{name}", "<i8") for name in _LAST]
    + [(f"suspect_{name}", "<i8") for name in READING_FIELDS]
    + [(name, "<i8") for name in (*_OWN, *_OPEN)]
)
_SECOND: Final = [
    (name, "<i8") for name in (*(f"former_{each}" for each in READING_FIELDS), *_LATER)
]
MEMORY_HEADERS: Final = {1: np.dtype(_FIRST), MEMORY_VERSION: np.dtype(_FIRST + _SECOND)}
MEMORY_HEADER: Final = MEMORY_HEADERS[MEMORY_VERSION]
_PAIR: Final = np.dtype([("bucket", "u1"), ("count", "<u4")])
_EVENT: Final = np.dtype("<u8")


def load_states(table: pa.Table, serials: pa.Array) -> SensorStates:
    """The states of these sensors; sensors without a row are new."""
    states = SensorStates.unknown(len(serials))
    found = pc.index_in(serials, value_set=table["sensor"].combine_chunks())
    sensors = np.flatnonzero(np.asarray(found.is_valid()))
    if len(sensors):
        rows = table.take(found.drop_null())
        _read_columns(states, rows, sensors)
        _read_memories(states, rows["memory"].combine_chunks(), sensors)
    return states


def _read_columns(states: SensorStates, rows: pa.Table, sensors: Numbers) -> None:
    def column(name: str, absent: int = NO_VALUE) -> Numbers:
        return np.asarray(rows[name].cast(pa.int64()).fill_null(absent))

    states.last.total_in[sensors] = column("total_in")
    states.last.total_out[sensors] = column("total_out")
    states.sum_in[sensors], states.sum_out[sensors] = column("sum_in"), column("sum_out")
    states.counter[sensors], states.flags[sensors] = column("counter"), column("flags")
    states.received[sensors], states.at[sensors] = column("received_at"), column("at")


def _read_memories(states: SensorStates, memory: pa.Array, sensors: Numbers) -> None:
    bodies = FrameBodies.of(memory)
    if (bodies.lengths < 1).any():
        raise PreconditionFailed("sensor_state.memory is missing; rebuild the flow 'hives'")
    version = bodies.heads(1).reshape(-1)
    if not np.isin(version, list(MEMORY_HEADERS)).all():
        raise PreconditionFailed(
            f"sensor_state.memory has a version above {MEMORY_VERSION}: it was written by a newer "
            "penstock-hives; upgrade this one"
        )
    recent = []
    for number, header in MEMORY_HEADERS.items():
        rows = np.flatnonzero(version == number)
        if len(rows):
            every = len(rows) == len(sensors)
            selected = bodies if every else FrameBodies.of(memory.take(pa.array(rows)))
            recent.append(_read_version(states, selected, header, sensors[rows]))
    events, owner = (np.concatenate(column) for column in zip(*recent, strict=True))
    order = np.argsort(owner, kind="stable")
    states.recent, states.recent_of = events[order], owner[order]


def _read_version(
    states: SensorStates, bodies: FrameBodies, kind: np.dtype[Any], sensors: Numbers
) -> tuple[NDArray[np.uint64], Numbers]:
    """Memories of one version; returns the last events and their sensors."""
    if (bodies.lengths < kind.itemsize).any():
        raise PreconditionFailed("sensor_state.memory is truncated; rebuild the flow 'hives'")
    header = bodies.heads(kind.itemsize).view(kind).reshape(-1)
    for name in _LAST:
        getattr(states.last, name)[sensors] = header[f"last_{name}"]
    for name in READING_FIELDS:
        getattr(states.suspect, name)[sensors] = header[f"suspect_{name}"]
        if kind == MEMORY_HEADER:
            getattr(states.former, name)[sensors] = header[f"former_{name}"]
    for name in (*_OWN, *(_LATER if kind == MEMORY_HEADER else ())):
        getattr(states, name)[sensors] = header[name]
    for name in _OPEN:
        getattr(states.rates, name)[sensors] = header[name]
    states.settled[sensors], states.order[sensors] = header["settled"], header["order"]

    pairs = header["pairs"].astype(np.int64)
    begin = bodies.starts + kind.itemsize
    owner, at = _spread(begin, pairs, _PAIR.itemsize)
    tallied = _gather(bodies.data, at, _PAIR)
    states.rates.tally[sensors[owner], tallied["bucket"]] = tallied["count"]
    begin = begin + pairs * _PAIR.itemsize
    events = (bodies.starts + bodies.lengths - begin) // _EVENT.itemsize
    owner, at = _spread(begin, events, _EVENT.itemsize)
    return _gather(bodies.data, at, _EVENT).astype(np.uint64), sensors[owner]


def save_states(states: SensorStates, serials: pa.Array, sensor_ids: Numbers) -> pa.RecordBatch:
    last = states.last
    reported = last.total_in != NO_VALUE
    until = np.maximum(last.received, states.rates.since)
    columns: dict[str, Any] = {
        "sensor": serials,
        "sensor_id": sensor_ids,
        "total_in": _masked(last.total_in, reported),
        "total_out": _masked(last.total_out, reported),
        "device_time": _masked(last.clock, reported & (last.clock != NO_CLOCK)),
        "received_at": states.received,
        "at": states.at,
        "rate_p99": states.rates.percentile(until).astype(np.float64),
        "sum_in": states.sum_in,
        "sum_out": states.sum_out,
        "counter": _masked(states.counter, states.counter != NO_VALUE),
        "flags": states.flags,
        "memory": _memories(states),
    }
    arrays = [_cast(columns[field.name], field.type) for field in SENSOR_STATE_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SENSOR_STATE_SCHEMA)


def _memories(states: SensorStates) -> pa.Array:
    count = len(states)
    header = np.zeros(count, MEMORY_HEADER)
    header["version"] = MEMORY_VERSION
    header["settled"], header["order"] = states.settled, states.order
    for name in _LAST:
        header[f"last_{name}"] = getattr(states.last, name)
    for name in READING_FIELDS:
        header[f"suspect_{name}"] = getattr(states.suspect, name)
        header[f"former_{name}"] = getattr(states.former, name)
    for name in (*_OWN, *_LATER):
        header[name] = getattr(states, name)
    for name in _OPEN:
        header[name] = getattr(states.rates, name)
    owner, bucket = np.nonzero(states.rates.tally)
    pairs = np.bincount(owner, minlength=count)
    header["pairs"] = pairs
    events = np.bincount(states.recent_of, minlength=count)

    lengths = MEMORY_HEADER.itemsize + pairs * _PAIR.itemsize + events * _EVENT.itemsize
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    data = np.zeros(int(ends[-1]), np.uint8)
    begin = ends[:-1].astype(np.int64)
    _scatter(data, begin, header)
    begin += MEMORY_HEADER.itemsize
    tallied = np.zeros(len(owner), _PAIR)
    tallied["bucket"], tallied["count"] = bucket, states.rates.tally[owner, bucket]
    _scatter(data, _spread(begin, pairs, _PAIR.itemsize)[1], tallied)
    begin += pairs * _PAIR.itemsize
    _scatter(data, _spread(begin, events, _EVENT.itemsize)[1], states.recent.astype(_EVENT))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _spread(begin: Numbers, counts: Numbers, width: int) -> tuple[Numbers, Numbers]:
    """The owner and the position of each item, with `counts` items from each `begin` on."""
    owner = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, begin[owner] + within * width


def _gather(data: Bytes, at: Numbers, kind: np.dtype[Any]) -> NDArray[Any]:
    if not len(at):
        return np.zeros(0, kind)
    return np.ascontiguousarray(sliding_window_view(data, kind.itemsize)[at]).view(kind).reshape(-1)


def _scatter(data: Bytes, at: Numbers, items: NDArray[Any]) -> None:
    if len(at):
        width = items.dtype.itemsize
        windows = sliding_window_view(data, width, writeable=True)
        windows[at] = items.view(np.uint8).reshape(len(items), width)


def _masked(values: Numbers, present: Flags) -> pa.Array:
    return pa.array(values, mask=~present)


def _cast(column: Any, kind: pa.DataType) -> pa.Array:
    array = column if isinstance(column, pa.Array) else pa.array(column)
    return array if array.type == kind else array.cast(kind)
