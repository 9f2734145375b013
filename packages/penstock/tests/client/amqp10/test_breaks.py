"""What AMQP 1.0 promises of a broken connection beside the rest: silence is noticed."""

from __future__ import annotations

import asyncio

from penstock.client import connect
from tests.client.amqp10.conftest import url_of
from tests.client.line import Line


async def test_a_broker_that_falls_silent_is_missed(line: Line, name: str) -> None:
    async with connect(url_of(line.port) + "?heartbeat=1") as fabric:
        work = fabric.push(name)
        await work.send(b"before")
        line.hold()
        sending = asyncio.create_task(work.send(b"after"))
        await asyncio.wait((sending,), timeout=3)  # nothing is heard for twice the heartbeat
        assert not sending.done(), "nobody can have taken it"
        line.cut()
        await sending
        async with fabric.pull(name) as items:
            assert [(await items.receive()).body, (await items.receive()).body] == [
                b"before",
                b"after",
            ]
