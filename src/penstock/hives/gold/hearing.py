"""Which doors are heard of: from what they last sent and how long they may be silent."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.gold.columns import fetch
from penstock.hives.sensors.messages.configuration import Configuration
from penstock.hives.steps.status import Heard
from penstock.store import Connection

Numbers = NDArray[np.int64]

#: Of a sensor that sends events nothing is heard while nobody passes: its statuses tell that it
#: lives. Others tell their totals, and statuses without them are no news.
_DOORS: Final = """
    SELECT s.hive_id,
           coalesce(st.received_at, 'epoch'),
           coalesce(
               CASE s.protocol WHEN 'event'
                   THEN greatest(st.received_at, ss.received_at)
                        + 2 * coalesce(c.status_interval_min, %(status)s) * interval '1 minute'
                   ELSE st.received_at
                        + 2 * coalesce(c.report_interval_min, %(report)s) * interval '1 minute'
               END, 'epoch')
    FROM sensor s
    LEFT JOIN sensor_report_config c ON c.id = s.report_config_id
    LEFT JOIN sensor_state st ON st.sensor_id = s.id
    LEFT JOIN sensor_status ss ON ss.sensor_id = s.id
    WHERE s.state = 'active' AND (%(every)s OR s.hive_id = ANY (%(hives)s::bigint[]))
"""
_CLOCK: Final = """
    SELECT coalesce(max(received_at), 'epoch') FROM (
        SELECT max(received_at) AS received_at FROM sensor_state
        UNION ALL SELECT max(received_at) FROM sensor_status
    ) AS heard
"""


def hear(connection: Connection, hives: Numbers, now: int, *, every: bool) -> Heard:
    """Of these hives in order; `every` says that they are all there are."""
    untold = Configuration()
    given = {
        "status": untold.status_interval_min,
        "report": untold.report_interval_min,
        "hives": [] if every else hives.tolist(),
        "every": every,
    }
    kinds = {"hive": "number", "received": "time", "until": "time"}
    doors = fetch(connection, _DOORS, kinds, given)
    known = np.isin(doors["hive"], hives)
    place = np.searchsorted(hives, doors["hive"][known])
    received, until = doors["received"][known], doors["until"][known]
    as_of, fresh_until, count, fresh = (np.zeros(len(hives), np.int64) for _ in range(4))
    np.maximum.at(as_of, place, received)
    np.maximum.at(fresh_until, place, until)
    np.add.at(count, place, 1)
    np.add.at(fresh, place, until > now)
    return Heard(hives, as_of, count, fresh, fresh_until)


def last_heard(connection: Connection) -> int:
    """When the last message came that gold knows of: microseconds."""
    return int(fetch(connection, _CLOCK, {"at": "time"}, {})["at"][0])
