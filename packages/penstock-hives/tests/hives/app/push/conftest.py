"""A town, and somebody in it with a browser and a phone."""

from __future__ import annotations

import pytest

from penstock_hives.database import DatabasePool
from tests.hives.app.alerts.given import settle_town


@pytest.fixture
async def pool(pool: DatabasePool) -> DatabasePool:
    await settle_town(pool)
    await pool.execute("""
        INSERT INTO push_endpoint (id, user_id, kind, address, keys)
        VALUES (7, 1, 'webpush', 'browser', '{"auth": "x"}'), (8, 1, 'fcm', 'phone', '{}')
    """)
    return pool
