"""From rows to values of the domain that more than one repository gives."""

from __future__ import annotations

from typing import Any

from penstock.hives.app.domain.deals import Deal
from penstock.hives.app.domain.hives import Address
from penstock.hives.app.domain.images import Image, url_of
from penstock.hives.app.domain.occupancy import Occupancy, usual

#: Of deals `d` and their hives `h`.
DEAL = """
    d.id, d.hive_id, h.name AS hive_name, d.title, d.description, d.terms, d.kind, d.starts_at,
    d.expires_at, d.status, d.max_redemptions, d.redemptions, d.updated_at
"""
#: Deals that can be used at `now`.
ACTIVE = """
    d.status = 'published' AND d.starts_at <= %(now)s AND d.expires_at > %(now)s
    AND (d.max_redemptions IS NULL OR d.redemptions < d.max_redemptions)
"""
#: Hives everybody may see.
SEEN = "h.public AND h.status = 'active'"
IMAGE = """
    id, hive_id, kind, mime, width, height, bytes, caption, position, created_at
"""
#: The status `s` of hives `h`, with what is usual at this hour of their week, `w`.
STANDING = """
    s.occupancy, s.percent, s.level, s.trend, s.quality, s.as_of, s.version,
    w.occupancy AS usual, w.weeks
"""
STANDING_JOINS = """
    LEFT JOIN hive_status s ON s.hive_id = h.id
    LEFT JOIN typical_week w ON w.hive_id = h.id
        AND w.weekday = extract(isodow FROM %(now)s AT TIME ZONE h.time_zone) - 1
        AND w.hour = extract(hour FROM %(now)s AT TIME ZONE h.time_zone)
"""
PLACE = "a.id AS address_id, a.street, a.city, a.zip, a.country, a.lat, a.lon"


def deal(row: dict[str, Any]) -> Deal:
    return Deal(**row)


def image(row: dict[str, Any]) -> Image:
    return Image(**row, url=url_of(row["id"]))


def address(row: dict[str, Any]) -> Address | None:
    if row["address_id"] is None:
        return None
    names = ("street", "city", "zip", "country", "lat", "lon")
    return Address(**{name: row[name] for name in names})


def standing(hive: int, row: dict[str, Any]) -> Occupancy | None:
    if row["version"] is None:
        return None
    percent = row["percent"]
    return Occupancy(
        hive,
        row["occupancy"],
        None if percent is None else round(percent, 1),
        row["level"],
        row["trend"],
        row["quality"],
        row["as_of"],
        row["version"],
        usual(row["occupancy"], row["quality"], row["usual"], row["weeks"]),
    )
