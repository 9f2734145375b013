"""A batch of silver brought down to its facts, from its files, in the driver.

Half a million rows are a few columns of numbers and take NumPy less time than it takes Spark to
start a job. The facts are entered over one connection: tasks that copied their rows themselves
would each need one, and a staging table to meet in, which costs a batch of live messages more than
all of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.hives.gold.facts import DEAD_LETTERS, STATUSES, Facts
from penstock.hives.steps.decoded import Part
from penstock.hives.steps.occupancy import Counts, added, slot_of
from penstock.hives.steps.profiles import Profiles
from penstock.hives.steps.quality import SET_ASIDE
from penstock.hives.steps.states import STATE

#: What is read of rows that count, which are nearly all, and of the others.
COUNTED: Final = ("hive_id", "at", "quality", "delta_in", "delta_out")
OTHERS: Final = (
    *("part", "stream", "received_at", "sensor", "raw"),
    *("state", "status", "letter", "notice"),
)
COUNTS: Final = pc.field("part") == Part.REPORT.value
#: Of silver's statuses, the names the table has for them.
_NAMES: Final = {"battery": "battery_mv", "signal": "signal_dbm"}


@dataclass(frozen=True, slots=True)
class Gathered:
    facts: Facts
    notices: list[Mapping[str, str]]


def gather(reports: pa.Table, others: pa.Table, profiles: Profiles, messages: int) -> Gathered:
    """Of rows of `SILVER`, of so many messages."""

    def part(wanted: Part) -> pa.Table:
        return others.filter(pc.equal(others["part"], wanted.value))

    facts = Facts(
        counts=counts(reports),
        states=_fields(part(Part.STATE)["state"]).cast(STATE),
        statuses=_last(part(Part.STATUS), profiles),
        dead_letters=_counted(part(Part.DEAD_LETTER)),
        rows=messages,
    )
    return Gathered(facts, part(Part.NOTICE)["notice"].to_pylist())


def counts(reports: pa.Table) -> Counts:
    """Entries and exits by hive and slot of `at`, of those that count.

    A report that counted nobody has its slot, too: the hive was heard of then.
    """
    aside = np.asarray(reports["quality"].fill_null(0)) & int(SET_ASIDE) != 0
    chosen = reports.filter(pa.array(~aside)) if aside.any() else reports
    at = np.asarray(chosen["at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    hive, entries, exits = (
        np.asarray(chosen[name].cast(pa.int64())) for name in ("hive_id", "delta_in", "delta_out")
    )
    return added([Counts(hive, slot_of(at), entries, exits)])


def _counted(letters: pa.Table) -> pa.Table:
    """Dead letters by day, stream and reason."""
    table = pa.table(
        {
            "day": letters["received_at"].cast(pa.timestamp("us", "UTC")).cast(pa.date32()),
            "stream": letters["stream"],
            "reason": pc.struct_field(letters["letter"], "reason"),
            "at": letters["received_at"],
        }
    )
    found = table.group_by(["day", "stream", "reason"]).aggregate([("at", "max"), ("at", "count")])
    return (
        found.rename_columns({"at_max": "last_at", "at_count": "count"})
        .select(DEAD_LETTERS.names)
        .cast(DEAD_LETTERS)
    )


def _last(statuses: pa.Table, profiles: Profiles) -> pa.Table:
    """The last of each sensor."""
    told = _fields(statuses["status"])
    columns: dict[str, Any] = {_NAMES.get(name, name): told[name] for name in told.schema.names}
    places = profiles.places(statuses["sensor"].combine_chunks())
    columns["sensor_id"] = pa.array(profiles.sensor_ids[places])
    columns["received_at"] = statuses["received_at"]
    columns["raw"] = statuses["raw"]
    chosen = pa.table(columns).select(STATUSES.names).cast(STATUSES)
    sensor = np.asarray(chosen["sensor_id"])
    received = np.asarray(chosen["received_at"].cast(pa.int64()))
    order = np.lexsort((received, sensor))
    last = np.append(sensor[order][1:] != sensor[order][:-1], True)[: len(order)]
    return chosen.take(pa.array(order[last]))


def _fields(structs: pa.ChunkedArray) -> pa.Table:
    whole = structs.combine_chunks()
    array = whole if isinstance(whole, pa.StructArray) else pa.concat_arrays(whole.chunks)
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(array)])
