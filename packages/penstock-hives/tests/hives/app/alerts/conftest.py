"""A town, and an evaluator for those in it."""

from __future__ import annotations

import pytest

from penstock_hives.alerts.evaluator import AlertEvaluator
from penstock_hives.database import DatabasePool
from tests.hives.app.alerts.given import Clock, settle_town


@pytest.fixture
async def pool(pool: DatabasePool) -> DatabasePool:
    await settle_town(pool)
    return pool


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def evaluator(pool: DatabasePool, clock: Clock) -> AlertEvaluator:
    return AlertEvaluator(pool, clock)
