"""The application, once for all tests of a file, and as new for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from penstock.hives.app.repositories.pool import Pool
from tests.databases import copy_of
from tests.hives.app.calling import Called, called, empty


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def serving(
    embedded_template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Called]:
    with copy_of(embedded_template) as url:
        async with called(url, tmp_path_factory.mktemp("hives")) as application:
            yield application


@pytest_asyncio.fixture(loop_scope="module")
async def hives(serving: Called) -> Called:
    await empty(serving.resources.pool)
    return serving


@pytest.fixture(scope="module")
def database(embedded_template: str) -> Iterator[str]:
    with copy_of(embedded_template) as url:
        yield url


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    async with Pool(database, size=4, wait=60.0, statement_seconds=60.0) as pool:
        await empty(pool)
        await pool.execute("INSERT INTO app_user (id, firebase_uid) VALUES (1, 'ada')")
        yield pool
