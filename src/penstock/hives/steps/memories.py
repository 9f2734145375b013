"""States as rows and back: columns for those everybody reads, bytes for what only the rules need.

    header, a fixed number of bytes
    pairs, as many as the header says: a bucket of rates (u8) and how many are in it (u32)
    the bodies of the last events, eight bytes each

All sensors of a batch are packed at once. The first byte is the version. A header of the first one
is shorter: what it does not have is not known yet. A reader that does not know a version refuses.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from penstock.core.errors import PreconditionFailed
from penstock.hives.sensors.columns.bodies import Bodies
from penstock.hives.steps.states import (
    NO_CLOCK,
    NOTHING,
    READING,
    REMEMBERED,
    STATE,
    States,
    rows_of,
)

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

VERSION: Final = 2
_LAST: Final = ("clock", "utc", "received")
_OWN: Final = ("seen", "learned_top", "counter_utc")
_OPEN: Final = ("since", "events")
_LATER: Final = ("boot", *REMEMBERED)  #: since the second version
_FIRST: Final = (
    [("version", "u1"), ("pairs", "u1"), ("settled", "?"), ("order", "u1")]
    + [(f"last_{name}", "<i8") for name in _LAST]
    + [(f"suspect_{name}", "<i8") for name in READING]
    + [(name, "<i8") for name in (*_OWN, *_OPEN)]
)
_SECOND: Final = [(name, "<i8") for name in (*(f"former_{each}" for each in READING), *_LATER)]
HEADERS: Final = {1: np.dtype(_FIRST), VERSION: np.dtype(_FIRST + _SECOND)}
HEADER: Final = HEADERS[VERSION]
_PAIR: Final = np.dtype([("bucket", "u1"), ("count", "<u4")])
_EVENT: Final = np.dtype("<u8")


def load(table: pa.Table, serials: pa.Array) -> States:
    """The states of these sensors; those the table does not have are new."""
    states = States.unknown(len(serials))
    held, sensors = rows_of(table, serials)
    if len(sensors):
        _read_columns(states, held, sensors)
        _read_memories(states, held["memory"].combine_chunks(), sensors)
    return states


def _read_columns(states: States, held: pa.Table, sensors: Numbers) -> None:
    def column(name: str, absent: int = NOTHING) -> Numbers:
        return np.asarray(held[name].cast(pa.int64()).fill_null(absent))

    states.last.total_in[sensors] = column("total_in")
    states.last.total_out[sensors] = column("total_out")
    states.sum_in[sensors], states.sum_out[sensors] = column("sum_in"), column("sum_out")
    states.counter[sensors], states.flags[sensors] = column("counter"), column("flags")
    states.received[sensors], states.at[sensors] = column("received_at"), column("at")


def _read_memories(states: States, memory: pa.Array, sensors: Numbers) -> None:
    bodies = Bodies.of(memory)
    if (bodies.lengths < 1).any():
        raise PreconditionFailed("sensor_state: a memory is missing")
    version = bodies.heads(1).reshape(-1)
    if not np.isin(version, list(HEADERS)).all():
        raise PreconditionFailed(f"sensor_state: a memory of a version above {VERSION}")
    recent = []
    for known, header in HEADERS.items():
        of_it = np.flatnonzero(version == known)
        if len(of_it):
            some = bodies if len(of_it) == len(sensors) else Bodies.of(memory.take(pa.array(of_it)))
            recent.append(_read_version(states, some, header, sensors[of_it]))
    events, owner = (np.concatenate(column) for column in zip(*recent, strict=True))
    order = np.argsort(owner, kind="stable")
    states.recent, states.recent_of = events[order], owner[order]


def _read_version(
    states: States, bodies: Bodies, kind: np.dtype[Any], sensors: Numbers
) -> tuple[NDArray[np.uint64], Numbers]:
    """Memories of one version; returns the last events, and whose they are."""
    if (bodies.lengths < kind.itemsize).any():
        raise PreconditionFailed("sensor_state: a memory is cut")
    header = bodies.heads(kind.itemsize).view(kind).reshape(-1)
    for name in _LAST:
        getattr(states.last, name)[sensors] = header[f"last_{name}"]
    for name in READING:
        getattr(states.suspect, name)[sensors] = header[f"suspect_{name}"]
        if kind == HEADER:
            getattr(states.former, name)[sensors] = header[f"former_{name}"]
    for name in (*_OWN, *(_LATER if kind == HEADER else ())):
        getattr(states, name)[sensors] = header[name]
    for name in _OPEN:
        getattr(states.rates, name)[sensors] = header[name]
    states.settled[sensors], states.order[sensors] = header["settled"], header["order"]

    pairs = header["pairs"].astype(np.int64)
    begin = bodies.starts + kind.itemsize
    owner, at = _spread(begin, pairs, _PAIR.itemsize)
    found = _gather(bodies.data, at, _PAIR)
    states.rates.tally[sensors[owner], found["bucket"]] = found["count"]
    begin = begin + pairs * _PAIR.itemsize
    events = (bodies.starts + bodies.lengths - begin) // _EVENT.itemsize
    owner, at = _spread(begin, events, _EVENT.itemsize)
    return _gather(bodies.data, at, _EVENT).astype(np.uint64), sensors[owner]


def save(states: States, serials: pa.Array, sensor_ids: Numbers) -> pa.RecordBatch:
    """The rows of all these sensors."""
    last = states.last
    reported = last.total_in != NOTHING
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
        "counter": _masked(states.counter, states.counter != NOTHING),
        "flags": states.flags,
        "memory": _memories(states),
    }
    arrays = [_cast(columns[field.name], field.type) for field in STATE]
    return pa.RecordBatch.from_arrays(arrays, schema=STATE)


def _memories(states: States) -> pa.Array:
    count = len(states)
    header = np.zeros(count, HEADER)
    header["version"] = VERSION
    header["settled"], header["order"] = states.settled, states.order
    for name in _LAST:
        header[f"last_{name}"] = getattr(states.last, name)
    for name in READING:
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

    lengths = HEADER.itemsize + pairs * _PAIR.itemsize + events * _EVENT.itemsize
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    data = np.zeros(int(ends[-1]), np.uint8)
    begin = ends[:-1].astype(np.int64)
    _scatter(data, begin, header)
    begin += HEADER.itemsize
    tallied = np.zeros(len(owner), _PAIR)
    tallied["bucket"], tallied["count"] = bucket, states.rates.tally[owner, bucket]
    _scatter(data, _spread(begin, pairs, _PAIR.itemsize)[1], tallied)
    begin += pairs * _PAIR.itemsize
    _scatter(data, _spread(begin, events, _EVENT.itemsize)[1], states.recent.astype(_EVENT))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _spread(begin: Numbers, counts: Numbers, width: int) -> tuple[Numbers, Numbers]:
    """For so many items from each beginning on: whose each is, and where it begins."""
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


def _masked(values: Numbers, present: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=~present)


def _cast(column: Any, kind: pa.DataType) -> pa.Array:
    array = column if isinstance(column, pa.Array) else pa.array(column)
    return array if array.type == kind else array.cast(kind)
