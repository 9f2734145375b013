"""The application over a database of the file's own, and a fresh process of it for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from penstock.hives.app.api.app import create_app
from penstock.hives.app.resources import open_resources
from penstock.hives.app.settings import Settings
from penstock.store import Database
from tests.databases import copy_of
from tests.hives.app.world import Hands, Names, Post, World


@pytest.fixture(scope="module")
def database(embedded_template: str) -> Iterator[Database]:
    with copy_of(embedded_template) as url, Database(url) as database:
        yield database


@pytest.fixture
def settings(database: Database, tmp_path: Path) -> Settings:
    return Settings(
        database=database.url,
        images=tmp_path / "images",
        lake=tmp_path / "lake",
        pool_wait=30.0,
        rate_known=10_000,
        rate_anonymous=10_000,
    )


@pytest.fixture
async def world(settings: Settings, database: Database) -> AsyncIterator[World]:
    post = Post()
    async with open_resources(settings, Names(), broker=post, clock=Hands()) as resources:
        transport = httpx.ASGITransport(create_app(resources), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://hives") as client:
            yield World(client, database, resources, post)
