"""Hives and sensors of the flow; read again when the catalogue has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock_hives.arrays import Numbers
from penstock_hives.occupancy.calendars import HiveCalendars, ResetSchedule
from penstock_hives.occupancy.profiles import SensorProfile, SensorProfiles
from penstock_hives.occupancy.rollups import OpeningShares
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_store import Connection

_HIVES_VERSION = "SELECT count(*) AS count, max(updated_at) AS at, sum(id) AS ids FROM hive"
_HIVES = "SELECT id, time_zone, reset_time, opening_hours, capacity FROM hive ORDER BY id"


@dataclass(frozen=True, slots=True)
class HiveCatalogue:
    version: tuple[Any, ...]
    hive: Numbers  #: in order
    capacity: Numbers  #: 0: unknown
    reset_schedules: Mapping[int, ResetSchedule]
    calendars: HiveCalendars
    opening_shares: OpeningShares

    @classmethod
    def read(cls, connection: Connection, known: HiveCatalogue | None) -> HiveCatalogue:
        """The current catalogue; the same object if nothing has changed."""
        row = connection.execute(_HIVES_VERSION).fetchone()
        version = tuple(row.values()) if row else ()
        if known is not None and known.version == version:
            return known
        rows = connection.execute(_HIVES).fetchall()
        return cls(
            version,
            np.array([row["id"] for row in rows], np.int64),
            np.array([row["capacity"] or 0 for row in rows], np.int64),
            {row["id"]: ResetSchedule.from_row(row) for row in rows},
            HiveCalendars({row["id"]: row["time_zone"] for row in rows}),
            OpeningShares({row["id"]: row["opening_hours"] for row in rows}),
        )

    def capacity_of(self, hives: Numbers) -> Numbers:
        return self.capacity[np.searchsorted(self.hive, hives)]


_SENSORS_VERSION: Final = """
    SELECT (SELECT (count(*), max(updated_at), sum(id)) FROM sensor)::text AS sensors,
           (SELECT (count(*), max(updated_at)) FROM hive)::text AS hives
"""
_SENSORS: Final = """
    SELECT s.id, s.serial, s.hive_id, h.time_zone, s.protocol, s.profile, s.direction_swapped
    FROM sensor s
    JOIN hive h ON h.id = s.hive_id
    WHERE s.state <> 'retired'
    ORDER BY s.id
"""
_STATES: Final = """
    SELECT s.serial AS sensor, st.* FROM sensor_state st JOIN sensor s ON s.id = st.sensor_id
"""


@dataclass(frozen=True, slots=True)
class SensorCatalogue:
    """The sensors, as of a version of the catalogue."""

    version: tuple[Any, ...]
    profiles: SensorProfiles


def read_profiles(connection: Connection, known: SensorCatalogue | None) -> SensorCatalogue:
    """The current profiles; the same object if nothing has changed."""
    row = connection.execute(_SENSORS_VERSION).fetchone()
    version = tuple(row.values()) if row else ()
    if known is not None and known.version == version:
        return known
    rows = connection.execute(_SENSORS).fetchall()
    return SensorCatalogue(version, SensorProfiles.of(SensorProfile.from_row(row) for row in rows))


def read_states(connection: Connection) -> pa.Table:
    """Of all sensors that ever sent a message."""
    return pa.Table.from_pylist(connection.execute(_STATES).fetchall(), SENSOR_STATE_SCHEMA)
