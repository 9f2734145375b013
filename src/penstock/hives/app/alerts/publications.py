"""What happens, as publications: how full a hive is, and what becomes of a deal.

A figure of a hive that nobody hears of is no news, and becomes no publication: a stale hive does
not read empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.content import Publication
from penstock.content.values import Value, Variable
from penstock.core.errors import WireSyntaxError
from penstock.hives.app.alerts.rules import DEAL, OCCUPANCY


@dataclass(frozen=True, slots=True)
class Figure:
    """How a hive stands, as the pipeline has published it."""

    hive_id: int
    occupancy: int
    percent: float | None
    level: str | None
    quality: str
    as_of: datetime
    version: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Figure:
        try:
            percent = document["percent"]
            return cls(
                int(document["hive"]),
                int(document["occupancy"]),
                None if percent is None else float(percent),
                document["level"],
                document["quality"],
                datetime.fromisoformat(document["as_of"]),
                int(document["version"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WireSyntaxError(f"no figure of a hive: {error!r}") from error

    @property
    def stale(self) -> bool:
        return self.quality == "stale"

    def publication(self) -> Publication:
        facts: dict[str, Any] = {
            "hive": self.hive_id,
            "occupancy": self.occupancy,
            "percent": self.percent,
            "level": self.level,
            "quality": self.quality,
        }
        return Publication(OCCUPANCY, _known(facts), self.as_of, self)


@dataclass(frozen=True, slots=True)
class DealNews:
    """Something has become of a deal: it is there, or it ends in so many hours."""

    deal_id: int
    hive_id: int
    hive: str
    hive_type: str
    kind: str
    title: str
    expires_at: datetime
    hours: int | None = None  #: until its end; None: it is new
    lat: float | None = None
    lon: float | None = None

    @property
    def mark(self) -> str:
        """What is remembered once it has been told."""
        return "new" if self.hours is None else f"{self.hours}h"

    def publication(self) -> Publication:
        facts: dict[str, Any] = {
            "event": "new" if self.hours is None else "expiring",
            "deal": self.deal_id,
            "hive": self.hive_id,
            "type": self.hive_type,
            "kind": self.kind,
            "hours": self.hours,
            "lat": self.lat,
            "lon": self.lon,
        }
        return Publication(DEAL, _known(facts), None, self)


def _known(facts: Mapping[str, Any]) -> dict[str, Value | Variable]:
    return {name: value for name, value in facts.items() if value is not None}
