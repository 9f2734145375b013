"""A venue to be forecast: its history, and whose holidays it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.hives.forecast.grid import Grid
from penstock.hives.forecast.public_days import PublicDays


@dataclass(frozen=True, slots=True)
class Venue:
    name: str
    grid: Grid
    public: PublicDays = field(default_factory=PublicDays)
