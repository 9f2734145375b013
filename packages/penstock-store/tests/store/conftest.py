"""Databases and caches for the tests: real servers, a fresh database for each test.

`database` is the embedded one and a plain PostgreSQL of the system in turn: what a test says of a
database has to be true of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_store import Database
from tests.databases import copy_of, grounds_of_its_own, new_template, with_name
from tests.fixtures import needed, running
from tests.store.servers import Memcached, PlainPostgres


@pytest.fixture
def grounds() -> Iterator[Path]:
    with grounds_of_its_own() as folder:
        yield folder


@pytest.fixture(scope="session")
def plain() -> Iterator[str]:
    with grounds_of_its_own() as folder, running(needed(PlainPostgres, folder)) as server:
        yield server.url


@pytest.fixture(scope="session")
def plain_template(plain: str) -> str:
    return new_template(plain)


# Made again each time tests turn from one server to the other: so it only looks up what is kept.
@pytest.fixture(scope="session", params=["embedded", pytest.param("plain", marks=pytest.mark.peer)])
def migrated(request: pytest.FixtureRequest) -> str:
    """A database with the schema, which others are made from."""
    url: str = request.getfixturevalue(f"{request.param}_template")
    return url


@pytest.fixture
def empty(migrated: str) -> Iterator[str]:
    """The URL of a database without a schema."""
    with copy_of(with_name(migrated, "template0")) as url:
        yield url


@pytest.fixture
def database(migrated: str) -> Iterator[Database]:
    with copy_of(migrated) as url, Database(url) as database:
        yield database


@pytest.fixture
def memcached(tmp_path: Path) -> Iterator[Memcached]:
    server = needed(Memcached, tmp_path)
    server.start()
    yield server
    server.kill()
