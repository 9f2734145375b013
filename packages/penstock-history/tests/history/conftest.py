"""What tests of history ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_history.archive import PublicationArchive
from penstock_store import Database
from tests.databases import copy_of
from tests.fixtures import running
from tests.padres import PadresBroker


@pytest.fixture
def database(embedded_template: str) -> Iterator[Database]:
    with copy_of(embedded_template) as url, Database(url) as opened:
        yield opened


@pytest.fixture
def archive(database: Database) -> PublicationArchive:
    return PublicationArchive(database)


@pytest.fixture(scope="module")
def padres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PadresBroker]:
    with running(PadresBroker(tmp_path_factory.mktemp("padres"))) as broker:
        yield broker
