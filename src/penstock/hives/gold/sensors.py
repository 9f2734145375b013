"""What silver needs of the database: who the sensors are, and where each of them stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.hives.steps.profiles import Profiles, SensorProfile
from penstock.hives.steps.states import STATE
from penstock.store import Connection

_VERSION: Final = """
    SELECT (SELECT (count(*), max(updated_at), sum(id)) FROM sensor)::text AS sensors,
           (SELECT (count(*), max(updated_at)) FROM hive)::text AS hives,
           (SELECT max(updated_at) FROM sensor_report_config)::text AS told
"""
_SENSORS: Final = """
    SELECT s.id, s.serial, s.hive_id, h.time_zone, s.protocol, s.profile, s.direction_swapped,
           c.report_interval_min
    FROM sensor s
    JOIN hive h ON h.id = s.hive_id
    LEFT JOIN sensor_report_config c ON c.id = s.report_config_id
    WHERE s.state <> 'retired'
    ORDER BY s.id
"""
_STATES: Final = """
    SELECT s.serial AS sensor, st.* FROM sensor_state st JOIN sensor s ON s.id = st.sensor_id
"""


@dataclass(frozen=True, slots=True)
class Known:
    """The sensors, as of a version of the catalogue."""

    version: tuple[Any, ...]
    profiles: Profiles


def read_profiles(connection: Connection, known: Known | None) -> Known:
    """As they are now; the same object if nothing has changed."""
    row = connection.execute(_VERSION).fetchone()
    version = tuple(row.values()) if row else ()
    if known is not None and known.version == version:
        return known
    rows = connection.execute(_SENSORS).fetchall()
    return Known(version, Profiles.of(SensorProfile.from_row(row) for row in rows))


def read_states(connection: Connection) -> pa.Table:
    """Of all sensors that were ever heard of."""
    return pa.Table.from_pylist(connection.execute(_STATES).fetchall(), STATE)
