"""A database with the schema, fresh for each test, and what tests of gold enter in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from psycopg.sql import SQL, Identifier

from penstock.store import Database, EmbeddedServer, connect, migrate
from tests.hives.gold.ledger import Bookkeeper
from tests.spark import spark
from tests.store.conftest import grounds_of_its_own, with_name

__all__ = ["spark"]  # one Spark for all


@pytest.fixture(scope="session")
def template() -> Iterator[str]:
    """The URL of a database that others are made from."""
    with grounds_of_its_own() as folder, EmbeddedServer(folder / "pg") as server:
        url = with_name(server.url, "template")
        with connect(server.url) as connection:
            connection.execute("CREATE DATABASE template")
        migrate(url)
        yield url


@pytest.fixture
def database(template: str) -> Iterator[Database]:
    name = f"t{uuid.uuid4().hex}"
    with connect(with_name(template, "postgres")) as connection:
        connection.execute(SQL("CREATE DATABASE {} TEMPLATE template").format(Identifier(name)))
        with Database(with_name(template, name)) as database:
            yield database
        connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


@pytest.fixture
def books(database: Database) -> Bookkeeper:
    return Bookkeeper(database)
