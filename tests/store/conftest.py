"""Databases and caches for the tests: real servers, a fresh database for each test.

`database` is the embedded one and a plain PostgreSQL of the system in turn: what a test says of a
database has to be true of both.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier

from penstock.store import Database, EmbeddedServer, connect, migrate
from tests.conftest import missing
from tests.peers import PeerMissing
from tests.store.servers import Memcached, PlainPostgres


@contextmanager
def grounds_of_its_own() -> Iterator[Path]:
    """A directory for servers that run as another user when the tests run as root.

    Not below pytest's own: every run of pytest closes that to others again.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def grounds() -> Iterator[Path]:
    with grounds_of_its_own() as folder:
        yield folder


@pytest.fixture(scope="session")
def embedded() -> Iterator[str]:
    with grounds_of_its_own() as folder, EmbeddedServer(folder / "pg") as server:
        yield server.url


@pytest.fixture(scope="session")
def plain() -> Iterator[str]:
    with grounds_of_its_own() as folder:
        yield from _plain(folder)


def _plain(folder: Path) -> Iterator[str]:
    try:
        server = PlainPostgres(folder)
    except PeerMissing as peer:
        missing(peer)
        raise
    server.start()
    yield server.url
    server.stop()


def with_name(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    address, question, options = url.partition("?")
    return f"{address.rpartition('/')[0]}/{name}{question}{options}"


@pytest.fixture(scope="session", params=["embedded", pytest.param("plain", marks=pytest.mark.peer)])
def migrated(request: pytest.FixtureRequest) -> str:
    """A database with the schema, which others are made from."""
    server: str = request.getfixturevalue(request.param)
    url = with_name(server, "template")
    with connect(server) as connection:
        connection.execute("CREATE DATABASE template")
    migrate(url)
    return url


@pytest.fixture
def new_database(migrated: str) -> Iterator[Callable[[str], str]]:
    """Make databases from a template, for the length of a test. Their URLs."""
    made: list[str] = []

    def make(template: str) -> str:
        name = f"t{uuid.uuid4().hex}"
        with connect(with_name(migrated, "postgres")) as connection:
            connection.execute(
                SQL("CREATE DATABASE {} TEMPLATE {}").format(Identifier(name), Identifier(template))
            )
        made.append(name)
        return with_name(migrated, name)

    yield make
    with connect(with_name(migrated, "postgres")) as connection:
        for name in made:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


@pytest.fixture
def empty(new_database: Callable[[str], str]) -> str:
    """The URL of a database without a schema."""
    return new_database("template0")


@pytest.fixture
def database(new_database: Callable[[str], str]) -> Iterator[Database]:
    with Database(new_database("template")) as database:
        yield database


@pytest.fixture
def memcached(tmp_path: Path) -> Iterator[Memcached]:
    try:
        server = Memcached(tmp_path)
    except PeerMissing as peer:
        missing(peer)
        raise
    server.start()
    yield server
    server.kill()
