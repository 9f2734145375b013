"""The API over jobs in memory, asked in process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from penstock_jobs.http.app import create_app
from tests.jobs.http.memory import MemoryJobs

URL = "http://jobs.localhost"


@pytest.fixture
def backend() -> MemoryJobs:
    return MemoryJobs()


@pytest.fixture
async def api(backend: MemoryJobs) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(backend))
    async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
        yield client
