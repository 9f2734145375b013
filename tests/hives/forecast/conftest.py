"""The Spark that all tests share, and a database with one hive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import store
from tests.pipeline.conftest import spark
from tests.store.conftest import grounds_of_its_own

__all__ = ["inn", "spark"]


@pytest.fixture(scope="package")
def inn() -> Iterator[store.Database]:
    """Hive 7, in Auckland."""
    with grounds_of_its_own() as folder, store.open(None, folder) as opened:
        opened.execute("INSERT INTO account (id, name) VALUES (1, 'one')")
        opened.execute("INSERT INTO hive_type (id, code, name) VALUES (91, 'inn', 'Inn')")
        opened.execute("INSERT INTO address (id, country) VALUES (1, 'NZ')")
        opened.execute(
            "INSERT INTO hive (id, account_id, address_id, hive_type_id, name, time_zone)"
            " VALUES (7, 1, 1, 91, 'The Inn', 'Pacific/Auckland')"
        )
        yield opened
