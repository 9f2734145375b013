"""A broker with no jobs on it, and clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from penstock_jobs.client import JobsClient
from tests.integration.jobs.running import PATIENCE, clean

Until = Callable[[Callable[[], bool]], "asyncio.Future[None]"]


@pytest.fixture
def jobs_url(broker_url: str) -> Iterator[str]:
    clean(broker_url)
    yield broker_url
    clean(broker_url)


@pytest.fixture
async def client(jobs_url: str) -> AsyncIterator[JobsClient]:
    async with asyncio.timeout(2 * PATIENCE):
        async with JobsClient(jobs_url) as opened:
            yield opened


async def until(holds: Callable[[], bool]) -> None:
    """For what nobody is told of."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
