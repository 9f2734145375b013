"""Somebody who pays."""

from __future__ import annotations

import pytest

from penstock_hives.database import DatabasePool


@pytest.fixture
async def pool(pool: DatabasePool) -> DatabasePool:
    await pool.execute("INSERT INTO app_user (id, firebase_uid) VALUES (1, 'ada')")
    return pool
