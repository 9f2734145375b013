"""Table `hive_status`: how full hives are now, each change with a version of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.gold.columns import fetch
from penstock.hives.gold.places import Places
from penstock.hives.steps.status import NO_NEWS, Figures, Heard, Statuses, statuses
from penstock.store import Connection

Numbers = NDArray[np.int64]

_TRENDS: Final = ("falling", "steady", "rising")
_READ: Final = """
    SELECT hive_id, raw_occupancy::bigint,
           CASE trend WHEN 'falling' THEN 0 WHEN 'steady' THEN 1 ELSE 2 END::bigint
    FROM hive_status WHERE hive_id = ANY (%(hives)s::bigint[])
"""
_COLUMNS: Final = (
    "hive_id, occupancy, raw_occupancy, percent, level, trend, quality, as_of, version"
)
_WRITE: Final = f"""
    INSERT INTO hive_status AS held ({_COLUMNS})
    SELECT hive_id, occupancy, raw, percent, nullif(level, ''), trend, quality,
           to_timestamp(as_of / 1000000) + as_of %% 1000000 * interval '1 microsecond', 1
    FROM unnest(
        %(hive)s::bigint[], %(occupancy)s::int[], %(raw)s::int[], %(percent)s::real[],
        %(level)s::text[], %(trend)s::text[], %(quality)s::text[], %(as_of)s::bigint[]
    ) AS t (hive_id, occupancy, raw, percent, level, trend, quality, as_of)
    ON CONFLICT (hive_id) DO UPDATE SET
        occupancy = excluded.occupancy, raw_occupancy = excluded.raw_occupancy,
        percent = excluded.percent, level = excluded.level, trend = excluded.trend,
        quality = excluded.quality, as_of = excluded.as_of, version = held.version + 1
    WHERE (held.occupancy, held.raw_occupancy, held.percent, held.level, held.trend, held.quality,
           held.as_of)
        IS DISTINCT FROM (excluded.occupancy, excluded.raw_occupancy, excluded.percent,
           excluded.level, excluded.trend, excluded.quality, excluded.as_of)
    RETURNING {_COLUMNS}
"""
_ALL: Final = f"SELECT {_COLUMNS} FROM hive_status ORDER BY hive_id"


@dataclass(frozen=True, slots=True)
class Standing:
    """A row of `hive_status`."""

    hive_id: int
    occupancy: int
    raw_occupancy: int
    percent: float | None
    level: str | None
    trend: str
    quality: str
    as_of: datetime
    version: int


def read_all(connection: Connection) -> list[Standing]:
    return [Standing(**row) for row in connection.execute(_ALL)]


def update(
    connection: Connection, places: Places, heard: Heard, news: Figures, now: int
) -> list[Standing]:
    """Say how hives stand now: those with news, and what time has done to the others.

    Those that changed are returned.
    """
    inside, trend = _inside(connection, heard.hive, news)
    chosen = np.isin(heard.hive, inside.hive)
    of_chosen = Heard(*(getattr(heard, name)[chosen] for name in Heard.__slots__))
    made = statuses(inside, places.capacity_of(inside.hive), trend, of_chosen, now)
    rows = connection.execute(_WRITE, _listed(made)).fetchall() if len(made.hive) else []
    return [Standing(**row) for row in rows]


def _inside(
    connection: Connection, hives: Numbers, news: Figures
) -> tuple[Figures, NDArray[np.str_]]:
    """What there is to say of hives that something was ever counted in."""
    kinds = dict.fromkeys(("hive", "raw", "trend"), "number")
    held = fetch(connection, _READ, kinds, {"hives": hives.tolist()})
    quiet = ~np.isin(held["hive"], news.hive)
    hive = np.concatenate([news.hive, held["hive"][quiet]])
    order = np.argsort(hive)
    raw = np.concatenate([news.raw, held["raw"][quiet]])
    change = np.concatenate([news.change, np.full(quiet.sum(), NO_NEWS)])
    trend = np.concatenate([np.ones(len(news.hive), np.int64), held["trend"][quiet]])
    return (
        Figures(hive[order], raw[order], change[order]),
        np.array(_TRENDS)[trend[order]],
    )


def _listed(made: Statuses) -> dict[str, Sequence[Any]]:
    percent = [None if np.isnan(each) else float(each) for each in made.percent]
    columns: dict[str, Sequence[Any]] = {
        name: getattr(made, name).tolist() for name in Statuses.__slots__
    }
    return {**columns, "percent": percent}
