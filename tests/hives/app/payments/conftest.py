"""Somebody who pays."""

from __future__ import annotations

import pytest

from penstock.hives.app.repositories.pool import Pool


@pytest.fixture
async def pool(pool: Pool) -> Pool:
    await pool.execute("INSERT INTO app_user (id, firebase_uid) VALUES (1, 'ada')")
    return pool
