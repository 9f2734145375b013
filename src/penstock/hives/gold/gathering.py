"""What tasks have carried to the driver, as facts to be entered in the books.

They are entered over one connection. Tasks that copied their rows themselves would each need one,
and a staging table to meet in, which costs a batch of live messages more than all of the rest.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.hives.gold.facts import DEAD_LETTERS, STATUSES, Facts
from penstock.hives.steps.profiles import Profiles
from penstock.hives.steps.reading import Carried, fields_of
from penstock.hives.steps.states import STATE

#: Of silver's statuses, the names the table has for them.
_NAMES: Final = {"battery": "battery_mv", "signal": "signal_dbm"}


def facts_of(carried: Carried, profiles: Profiles, messages: int) -> Facts:
    """Of so many messages."""
    return Facts(
        counts=carried.counts,
        states=carried.states.cast(STATE),
        statuses=_last(carried.statuses, profiles),
        dead_letters=_counted(carried.letters),
        rows=messages,
    )


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
    told = fields_of(statuses, "status")
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
