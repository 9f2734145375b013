"""The application, once for all tests of a file, and as new for each; and a database for those
who need no more.

Folders add to `pool` what their tests find there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from penstock_hives.database import DatabasePool
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
def own_database(embedded_template: str) -> Iterator[str]:
    """Its URL."""
    with copy_of(embedded_template) as url:
        yield url


@pytest.fixture
async def pool(own_database: str) -> AsyncIterator[DatabasePool]:
    """Over a database as nobody has used it."""
    async with DatabasePool(own_database, size=4, wait=60.0, statement_seconds=60.0) as pool:
        await empty(pool)
        yield pool
