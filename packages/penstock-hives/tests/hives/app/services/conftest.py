"""A database for the file, as the application's other tests have it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_store import Database
from tests.databases import copy_of


@pytest.fixture(scope="module")
def database(embedded_template: str) -> Iterator[Database]:
    with copy_of(embedded_template) as url, Database(url) as database:
        yield database
