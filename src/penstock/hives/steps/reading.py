"""Silver as a worker makes it: the messages of some sensors in, their rows and the rest out.

Rows go to the tables of the lake. The rest is little and wanted in one place: how many passed by
hive and slot, where sensors stand now, statuses, dead letters and notices. It is *carried* there.

The same rules as `silver`, which has all of it in one DataFrame to look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.hives.steps.counting import Counts as Counted
from penstock.hives.steps.counting import count
from penstock.hives.steps.decode import decode_messages
from penstock.hives.steps.decoded import DECODED, Part
from penstock.hives.steps.notices import NOTICES
from penstock.hives.steps.occupancy import SLOT, Counts, added
from penstock.hives.steps.profiles import Profiles
from penstock.hives.steps.quality import SET_ASIDE, Quality
from penstock.hives.steps.states import STATE
from penstock.hives.steps.tables import DEAD_LETTERS, REPORTS, STATUSES

_NUMBERS: Final = ("total_in", "total_out", "delta_in", "delta_out", "missed", "quality")
_PASSED: Final = pa.schema([(each.name, pa.int64()) for each in fields(Counts)])


@dataclass(frozen=True, slots=True)
class Carried:
    """What gold needs of some messages; `statuses` and `letters` are rows of `DECODED`."""

    counts: Counts
    states: pa.Table
    statuses: pa.Table
    letters: pa.Table
    notices: pa.Table

    def to_bytes(self) -> bytes:
        counts = [pa.array(getattr(self.counts, name)) for name in _PASSED.names]
        tables = (
            pa.Table.from_arrays(counts, schema=_PASSED),
            *(self.states, self.statuses, self.letters, self.notices),
        )
        sink = pa.BufferOutputStream()
        for table in tables:
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return bytes(sink.getvalue())

    @classmethod
    def joined(cls, parts: Iterable[bytes]) -> Carried:
        """All workers', as one."""
        empty = (_PASSED, STATE, DECODED, DECODED, NOTICES)
        found = [[schema.empty_table()] for schema in empty]
        for part in parts:
            source = pa.BufferReader(part)
            for tables in found:
                tables.append(pa.ipc.open_stream(source).read_all())
        passed, *others = (pa.concat_tables(tables).combine_chunks() for tables in found)
        counts = Counts(*(np.asarray(passed[name]) for name in _PASSED.names))
        return cls(added([counts]), *others)


def make(
    messages: Iterable[pa.RecordBatch], profiles: Profiles, state: pa.Table
) -> tuple[Mapping[str, pa.Table], Carried]:
    """Of all messages of some sensors, as the connector has them: rows by table, and the rest.

    The tables are those of `tables.TABLES`, but for the columns `day` and `batch`.

    They wait until all are here, for they count in the order of the stream.
    """
    parts: dict[Part, list[pa.RecordBatch]] = {part: [] for part in Part}
    for batch in messages:
        for rows in decode_messages(batch, profiles):
            if len(rows):
                # Every batch is of one part.
                parts[Part(rows["part"][0].as_py())].append(rows)
    decoded, statuses, letters = (
        pa.Table.from_batches(parts[part], DECODED).combine_chunks()
        for part in (Part.REPORT, Part.STATUS, Part.DEAD_LETTER)
    )
    counted = count(decoded, statuses, profiles, state)
    carried = Carried(
        counts=_passed(decoded, counted),
        states=pa.Table.from_batches([counted.states], STATE),
        statuses=statuses,
        letters=letters,
        notices=pa.Table.from_batches([counted.notices], NOTICES),
    )
    tables = {
        "silver.reports": _reports(decoded, counted),
        "silver.statuses": _opened(carried.statuses, "status", STATUSES),
        "silver.dead_letters": _opened(carried.letters, "letter", DEAD_LETTERS),
    }
    return tables, carried


def _reports(decoded: pa.Table, counted: Counted) -> pa.Table:
    """What counts people, and what each adds; copies are dropped."""
    schema = _made(REPORTS)
    if not len(decoded):
        return schema.empty_table()
    columns = {name: decoded[name] for name in schema.names if name in DECODED.names}
    for name in _NUMBERS:
        columns[name] = pa.array(getattr(counted, name)).cast(schema.field(name).type)
    for name in ("total_in", "total_out"):
        if decoded[name].null_count:  # an event has none
            columns[name] = pc.if_else(decoded[name].is_valid(), columns[name], None)
    restarts = counted.quality & int(Quality.RESTART) != 0
    if restarts.any():
        columns["kind"] = pc.if_else(pa.array(restarts), "restart", decoded["kind"])
    table = pa.table(columns).select(schema.names).cast(schema)
    copies = counted.quality & int(Quality.DUPLICATE) != 0
    return table.filter(pa.array(~copies)) if copies.any() else table


def _opened(rows: pa.Table, column: str, schema: pa.Schema) -> pa.Table:
    """Rows with the fields of a column that has several as columns."""
    fields = fields_of(rows, column)
    columns = {name: fields[name] for name in fields.schema.names}
    columns |= {name: rows[name] for name in schema.names if name in rows.schema.names}
    made = _made(schema)
    return pa.table(columns).select(made.names).cast(made)


def _made(schema: pa.Schema) -> pa.Schema:
    """Without what the writer adds."""
    return pa.schema([field for field in schema if field.name not in ("day", "batch")])


def _passed(decoded: pa.Table, counted: Counted) -> Counts:
    """Entries and exits by hive and slot of `at`, of those that count.

    A report that counted nobody has its slot, too: the hive was heard of then.
    """
    counts = counted.quality & int(SET_ASIDE) == 0
    hive = np.asarray(decoded["hive_id"])[counts]
    slot = np.asarray(decoded["at"].cast(pa.int64()))[counts] // SLOT
    return added([Counts(hive, slot, counted.delta_in[counts], counted.delta_out[counts])])


def fields_of(rows: pa.Table, column: str) -> pa.Table:
    """The fields of a column that has several, as columns."""
    whole = rows[column].combine_chunks()
    array = whole if isinstance(whole, pa.StructArray) else pa.concat_arrays(whole.chunks)
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(array)])
