"""What somebody wants to be told, by thresholds of their own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum
from typing import Final


class AlertKind(StrEnum):
    OCCUPANCY_ABOVE = "occupancy_above"
    OCCUPANCY_BELOW = "occupancy_below"
    DEAL_NEW = "deal_new"
    DEAL_EXPIRING = "deal_expiring"
    FAVOURITE_DEAL = "favourite_deal"


#: Kinds that need a hive, a threshold and a unit.
THRESHOLDS: Final = frozenset({AlertKind.OCCUPANCY_ABOVE, AlertKind.OCCUPANCY_BELOW})


@dataclass(frozen=True, slots=True)
class Definition:
    id: int
    hive_id: int | None
    kind: str
    threshold: float | None
    unit: str | None
    hysteresis: float
    cooldown_s: int
    quiet_from: time | None
    quiet_to: time | None
    channels: tuple[str, ...]
    enabled: bool
    created_at: datetime
    updated_at: datetime
