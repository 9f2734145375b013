"""A batch of silver brought down to its facts: one query of Spark's, few rows, to the driver.

The driver enters them over one connection. Tasks that copied their rows themselves would each need
one, and a staging table to meet in; for a batch of live messages that takes longer than all of
the rest, and a backlog's batch is aggregated before it comes here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.hives.gold.facts import DEAD_LETTERS, STATUSES, Facts, counts_of
from penstock.hives.steps import silver
from penstock.hives.steps.decoded import Part
from penstock.hives.steps.notices import NOTICES
from penstock.hives.steps.occupancy import slot_counts
from penstock.hives.steps.profiles import Profiles
from penstock.hives.steps.states import STATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COUNT: Final = "count"
_SIZE: Final = "size"
#: Of silver's statuses, the names the table has for them.
_NAMES: Final = {"battery": "battery_mv", "signal": "signal_dbm"}


@dataclass(frozen=True, slots=True)
class Gathered:
    facts: Facts
    notices: list[Mapping[str, str]]
    sizes: Mapping[str, int]  #: rows of silver, by part; events again by theirs


def gather(rows: DataFrame, profiles: Profiles, messages: int) -> Gathered:
    """Of rows of `SILVER`: cached, for they are looked at several times."""
    from pyspark.sql import functions as F

    reports = rows.where(F.col("part") == Part.REPORT.value)
    dead = silver.dead_letters(rows).groupBy("day", "stream", "reason")
    statuses = silver.statuses(rows).drop("stream", "offset", "day", "hive_id", "startup")
    sizes = rows.groupBy("part", "kind").agg(F.count("*").alias("rows"))
    parts = {
        _COUNT: slot_counts(reports),
        Part.STATE: silver.states(rows),
        Part.STATUS: statuses,
        Part.DEAD_LETTER: dead.agg(
            F.count("*").alias("count"), F.max("received_at").alias("last_at")
        ),
        Part.NOTICE: silver.notices(rows),
        _SIZE: sizes.withColumnRenamed("part", "of"),
    }
    every = None
    for name, frame in parts.items():
        named = frame.withColumn("_part", F.lit(str(name)))
        every = named if every is None else every.unionByName(named, allowMissingColumns=True)
    assert every is not None
    return _sorted_out(every.toArrow(), profiles, messages)


def _sorted_out(table: pa.Table, profiles: Profiles, messages: int) -> Gathered:
    def part(name: str) -> pa.Table:
        return table.filter(pc.equal(table["_part"], str(name)))

    facts = Facts(
        counts=counts_of(part(_COUNT)),
        states=part(Part.STATE).select(STATE.names).cast(STATE),
        statuses=_last(part(Part.STATUS), profiles),
        dead_letters=part(Part.DEAD_LETTER).select(DEAD_LETTERS.names).cast(DEAD_LETTERS),
        rows=messages,
    )
    sizes: dict[str, int] = {}
    for row in part(_SIZE).select(["of", "kind", "rows"]).to_pylist():
        for name in {row["of"], row["kind"] or row["of"]}:
            sizes[name] = sizes.get(name, 0) + row["rows"]
    return Gathered(facts, part(Part.NOTICE).select(NOTICES.names).to_pylist(), sizes)


def _last(statuses: pa.Table, profiles: Profiles) -> pa.Table:
    """The last of each sensor."""
    serials = statuses["sensor"].combine_chunks()
    columns: dict[str, Any] = {
        _NAMES.get(name, name): statuses[name] for name in statuses.schema.names
    }
    columns["sensor_id"] = pa.array(profiles.sensor_ids[profiles.places(serials)])
    chosen = pa.table(columns).select(STATUSES.names).cast(STATUSES)
    sensor = np.asarray(chosen["sensor_id"])
    received = np.asarray(chosen["received_at"].cast(pa.int64()))
    order = np.lexsort((received, sensor))
    last = np.append(sensor[order][1:] != sensor[order][:-1], True)[: len(order)]
    return chosen.take(pa.array(order[last]))
