"""Hives and sensors as the catalogue has them now: only those that a batch or a shard needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import time
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from penstock_hives.arrays import Numbers
from penstock_hives.occupancy.calendars import HiveCalendars, ResetSchedule
from penstock_hives.occupancy.gold.columns import fetch_columns, fetch_table
from penstock_hives.occupancy.profiles import PROFILE_SCHEMA, SensorProfiles
from penstock_hives.occupancy.rollups import OpeningShares
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.sensors.protocol import FirmwareProfile
from penstock_store import Connection

_HIVES: Final = """
    SELECT id, time_zone, reset_time, opening_hours::text, capacity
    FROM hive WHERE id = ANY (%s::bigint[]) ORDER BY id
"""


@lru_cache(maxsize=4096)
def _schedule(time_zone: str, reset_time: time, opening_hours: str) -> ResetSchedule:
    """Many hives have the same one."""
    return ResetSchedule(time_zone, reset_time, json.loads(opening_hours))


@dataclass(frozen=True, slots=True)
class HiveCatalogue:
    hive: Numbers  #: in order
    capacity: Numbers  #: 0: unknown
    schedules: Mapping[int, ResetSchedule]
    calendars: HiveCalendars

    @classmethod
    def read(cls, connection: Connection, hives: Numbers) -> HiveCatalogue:
        """Those of the hives that exist."""
        rows = connection.execute(_HIVES, (hives.tolist(),)).fetchall()
        return cls(
            np.array([row["id"] for row in rows], np.int64),
            np.array([row["capacity"] or 0 for row in rows], np.int64),
            {
                row["id"]: _schedule(row["time_zone"], row["reset_time"], row["opening_hours"])
                for row in rows
            },
            HiveCalendars({row["id"]: row["time_zone"] for row in rows}),
        )

    @property
    def opening_shares(self) -> OpeningShares:
        return OpeningShares({hive: each.opening_hours for hive, each in self.schedules.items()})

    def capacity_of(self, hives: Numbers) -> Numbers:
        return self.capacity[np.searchsorted(self.hive, hives)]


_HIVE_IDS: Final = """
    SELECT id FROM hive WHERE id > %(after)s AND id %% %(shards)s = %(shard)s
    ORDER BY id LIMIT %(limit)s
"""
_VERSION: Final = "SELECT count(*) AS count, max(updated_at) AS at, sum(id) AS ids FROM hive"


@dataclass(frozen=True, slots=True)
class HiveShard:
    """The hives whose id modulo `shards` is `number`."""

    number: int = 0
    shards: int = 1

    def of(self, hives: Numbers) -> Numbers:
        """Which of these hives, by row."""
        return np.flatnonzero(hives % self.shards == self.number)

    def read_ids(self, connection: Connection, after: int, limit: int) -> Numbers:
        """The next ids of this shard."""
        given = {"after": after, "limit": limit, "shards": self.shards, "shard": self.number}
        return np.sort(fetch_columns(connection, _HIVE_IDS, {"id": "number"}, given)["id"])


def hives_version(connection: Connection) -> tuple[object, ...]:
    """The number of hives first; differs after any change of a hive."""
    row = connection.execute(_VERSION).fetchone()
    return tuple(row.values()) if row else (0,)


_SENSORS: Final = """
    SELECT s.serial, s.id, s.hive_id, h.time_zone, s.protocol, s.direction_swapped,
           s.profile::text, st.sensor_id, st.total_in, st.total_out, st.device_time,
           st.received_at, st.at, st.rate_p99, st.sum_in, st.sum_out, st.counter::bigint,
           st.flags::bigint, st.memory
    FROM unnest(%(serials)s::text[]) AS t (serial)
    JOIN sensor s ON s.serial = t.serial AND s.state <> 'retired'
    JOIN hive h ON h.id = s.hive_id
    LEFT JOIN sensor_state st ON st.sensor_id = s.id
"""
_PROFILE_COLUMNS: Final = PROFILE_SCHEMA.names[:6]
_SENSOR_SCHEMA: Final = pa.schema(
    [
        *(PROFILE_SCHEMA.field(name) for name in _PROFILE_COLUMNS),
        ("profile", pa.string()),
        ("state_of", pa.int64()),
        *(field for field in SENSOR_STATE_SCHEMA if field.name not in ("sensor", "sensor_id")),
    ]
)


@dataclass(frozen=True, slots=True)
class KnownSensors:
    """Sensors of the catalogue, and the states of those that sent messages before."""

    profiles: SensorProfiles
    states: pa.Table


def read_sensors(connection: Connection, serials: pa.Array) -> KnownSensors:
    """Those of these sensors that exist and are not retired."""
    found = fetch_table(connection, _SENSORS, _SENSOR_SCHEMA, {"serials": serials.to_pylist()})
    known = found.filter(found["state_of"].is_valid())
    states = {name: known[name] for name in SENSOR_STATE_SCHEMA.names if name in found.column_names}
    states |= {"sensor": known["serial"], "sensor_id": known["state_of"]}
    return KnownSensors(_profiles(found), pa.table(states).select(SENSOR_STATE_SCHEMA.names))


def _profiles(found: pa.Table) -> SensorProfiles:
    """Few profiles differ: each is parsed once."""
    texts = found["profile"].combine_chunks().dictionary_encode()
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    parsed = [FirmwareProfile.from_json(json.loads(text)) for text in texts.dictionary.to_pylist()]
    columns = {name: found[name] for name in _PROFILE_COLUMNS}
    for name in PROFILE_SCHEMA.names[6:]:
        values = pa.array([getattr(each, name) for each in parsed], PROFILE_SCHEMA.field(name).type)
        columns[name] = values.take(texts.indices)
    return SensorProfiles(pa.table(columns))
