from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.broker.log import Committer
from tests.broker.log.given import Disk


@pytest.fixture
def idle() -> Iterator[Committer]:
    """A committer for tests that need no sync: they call `write` and nobody waits."""
    loop = asyncio.new_event_loop()
    disk = Disk(loop)
    yield disk.committer
    loop.run_until_complete(disk.committer.close())
    loop.close()
