"""A town, and somebody in it with a browser and a phone."""

from __future__ import annotations

import pytest

from penstock.hives.app.repositories.pool import Pool
from tests.hives.app.alerts.given import settle_town


@pytest.fixture
async def pool(pool: Pool) -> Pool:
    await settle_town(pool)
    await pool.execute("""
        INSERT INTO push_endpoint (id, user_id, kind, address, keys)
        VALUES (7, 1, 'webpush', 'browser', '{"auth": "x"}'), (8, 1, 'fcm', 'phone', '{}')
    """)
    return pool
