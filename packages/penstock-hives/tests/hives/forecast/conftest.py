"""A database with one hive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_store import Database
from tests.databases import copy_of


@pytest.fixture
def inn(embedded_template: str) -> Iterator[Database]:
    """Hive 7, in Auckland."""
    with copy_of(embedded_template) as url, Database(url) as opened:
        opened.execute("INSERT INTO account (id, name) VALUES (1, 'one')")
        opened.execute("INSERT INTO hive_type (id, code, name) VALUES (91, 'inn', 'Inn')")
        opened.execute("INSERT INTO address (id, country) VALUES (1, 'NZ')")
        opened.execute(
            "INSERT INTO hive (id, account_id, address_id, hive_type_id, name, time_zone)"
            " VALUES (7, 1, 1, 91, 'The Inn', 'Pacific/Auckland')"
        )
        yield opened
