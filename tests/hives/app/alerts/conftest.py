"""A town, and an evaluator for those in it."""

from __future__ import annotations

import pytest

from penstock.hives.app.alerts.evaluator import Evaluator
from penstock.hives.app.repositories.pool import Pool
from tests.hives.app.alerts.given import Clock, settle_town


@pytest.fixture
async def pool(pool: Pool) -> Pool:
    await settle_town(pool)
    return pool


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def evaluator(pool: Pool, clock: Clock) -> Evaluator:
    return Evaluator(pool, clock)
