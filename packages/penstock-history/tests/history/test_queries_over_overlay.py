"""A question that is withdrawn while its answer is being looked for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

from penstock.content import parse_subscription
from penstock_history.historian import Historian
from penstock_history.publication import ArchivedPublication
from penstock_history.query import HistoryQuery


class SlowArchive:
    """One whose database takes its time."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.found = threading.Event()
        self.in_time = False

    def query(self, query: HistoryQuery) -> Generator[ArchivedPublication]:
        self.asked.set()
        self.in_time = self.found.wait(20)
        yield from ()


async def test_nobody_waits_for_a_database_that_is_still_looking() -> None:
    archive: Any = SlowArchive()
    client: Any = SimpleNamespace(brokers={"B1": None})
    fabric: Any = None
    historian = Historian(client, fabric, archive)
    query = HistoryQuery(parse_subscription("[class,eq,stock]"))
    saying = asyncio.create_task(historian._publish_results(query))
    await asyncio.to_thread(archive.asked.wait, 60)
    saying.cancel()
    await asyncio.sleep(0)
    archive.found.set()
    with contextlib.suppress(asyncio.CancelledError):
        await saying
    assert archive.in_time
