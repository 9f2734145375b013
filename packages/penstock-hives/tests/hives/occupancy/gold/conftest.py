"""A database with the schema, fresh for each test, and what tests of gold enter in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_store import Database
from tests.databases import copy_of
from tests.hives.occupancy.gold.ledger import Bookkeeper


@pytest.fixture
def database(embedded_template: str) -> Iterator[Database]:
    with copy_of(embedded_template) as url, Database(url) as database:
        yield database


@pytest.fixture
def books(database: Database) -> Bookkeeper:
    return Bookkeeper(database)
