"""The application over a database of the file's own, and resources of its own for each test.

Its routes are laid once: that takes longer than most tests do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from penstock_hives.api.app import create_app
from penstock_hives.resources import Resources, open_resources
from penstock_hives.settings import HivesSettings
from penstock_store import Database
from tests.databases import copy_of
from tests.hives.app.world import Hands, Names, Post, World


@pytest.fixture(scope="module")
def database(embedded_template: str) -> Iterator[Database]:
    with copy_of(embedded_template) as url, Database(url) as database:
        yield database


@pytest.fixture
def settings(database: Database, tmp_path: Path) -> HivesSettings:
    return HivesSettings(
        database=database.url,
        images=tmp_path / "images",
        lake=str(tmp_path / "lake"),
        pool_wait=30.0,
        rate_known=10_000,
        rate_anonymous=10_000,
    )


class Routes:
    """One application, over whatever resources there are at the time."""

    def __init__(self) -> None:
        self._app: FastAPI | None = None

    def over(self, resources: Resources) -> FastAPI:
        if self._app is None:
            self._app = create_app(resources)
        self._app.state.resources = resources
        return self._app


@pytest.fixture(scope="session")
def routes() -> Routes:
    return Routes()


@pytest.fixture
async def world(
    settings: HivesSettings, database: Database, routes: Routes
) -> AsyncIterator[World]:
    post = Post()
    async with open_resources(settings, Names(), broker=post, clock=Hands()) as resources:
        transport = httpx.ASGITransport(routes.over(resources), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://hives") as client:
            yield World(client, database, resources, post)
