"""One broker for all tests of a worker; each brings its own clients and classes."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from penstock.client.padres import PadresClient
from tests.fixtures import running
from tests.padres import PadresBroker, Watcher, watching


@pytest.fixture(scope="session")
def padres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PadresBroker]:
    with running(PadresBroker(tmp_path_factory.mktemp("padres"))) as broker:
        yield broker


@pytest.fixture
def kind() -> str:
    """A class that no other test uses."""
    return f"k{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def ada(padres: PadresBroker) -> AsyncIterator[PadresClient]:
    async with PadresClient(padres.url) as client:
        yield client


@pytest.fixture
async def bob(padres: PadresBroker) -> AsyncIterator[Watcher]:
    async with watching(padres.url) as watcher:
        yield watcher
