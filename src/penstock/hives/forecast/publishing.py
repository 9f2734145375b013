"""A night's forecasts into PostgreSQL, in one transaction with what was judged, and how.

Earlier ones stay, to be scored when their day has passed. The same night published again changes
nothing. A few rows an hour and hive: the driver takes them at once.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from penstock.hives.forecast.nightly import Night
from penstock.store import Connection, Database, discard, fill, merge, stage

_FLOW: Final = "forecast"
_KEYS: Final = {
    "forecast": ("hive_id", "slot", "model", "made_at"),
    "forecast_peak": ("hive_id", "day", "model", "made_at"),
}


def publish(database: Database, night: Night) -> int:
    """How many hours of hives were new."""
    tables = {"forecast": night.forecasts.toArrow(), "forecast_peak": night.peaks.toArrow()}
    with database.transaction() as connection:
        _keep_verdict(connection, night)
        new = {name: _add(connection, name, rows, night) for name, rows in tables.items()}
    return new["forecast"]


def _add(connection: Connection, target: str, rows: Any, night: Night) -> int:
    moment = int(night.made_at.timestamp())
    staging = stage(connection, _FLOW, moment, target, rows.schema.names)
    fill(connection, staging, rows.to_batches(), part=0)
    added = merge(connection, staging, target, _KEYS[target], {})
    discard(connection, staging)
    return added


def _keep_verdict(connection: Connection, night: Night) -> None:
    verdict = night.verdict
    figures = (verdict.wape, verdict.baseline_wape, verdict.share_better)
    connection.execute(
        """
        INSERT INTO forecast_model
            (model, made_at, accepted, wape, baseline_wape, share_better, figures)
        VALUES (%s, %s, %s, %s, %s, %s, %s)
        ON CONFLICT (model) DO NOTHING
        """,
        (
            night.judged,
            night.made_at,
            verdict.accepted,
            *(None if math.isnan(each) else each for each in figures),
            json.dumps({"reason": verdict.reason}),
        ),
    )
