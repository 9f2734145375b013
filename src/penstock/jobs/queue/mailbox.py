"""A requester's place on a broker: requests leave from it, and the responses to them come to it.

Whichever protocol leads there: `mailbox_at` picks it by the URL. Over AMQP 0-9-1 responses wait in
a queue of the requester's own while its connection is broken.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from penstock.client.amqp091.channel import Channel
from penstock.client.amqp091.connection import Connection
from penstock.client.amqp091.link import Link
from penstock.core.errors import PenstockError
from penstock.jobs.forms import Form
from penstock.jobs.model import Request
from penstock.jobs.options import Options
from penstock.jobs.queue.envelope import Envelope
from penstock.jobs.queue.requester import Requester
from penstock.jobs.queue.topology import RESPONSES, Durability
from penstock.wire.amqp091.address import parse_address
from penstock.wire.amqp091.messages import Content

#: Whose URLs lead to AMQP 1.0.
_AMQP10: Final = ("amqp+1.0://", "amqps+1.0://")
#: Responses to a requester that does not come back.
_QUEUE_MILLISECONDS: Final = 600_000

#: Told the body of each response.
Hear = Callable[[bytes], None]
#: Told why there will be no other.
Fail = Callable[[PenstockError], None]


class Mailbox(Protocol):
    async def open(self, hear: Hear, fail: Fail) -> None:
        """Returns when what is answered from now on is heard."""

    async def send(self, request: Request, options: Options, form: Form) -> None:
        """Returns when the broker has it safe."""

    async def cancel(self, identity: str) -> None: ...

    async def close(self) -> None: ...


def by_amqp10(url: str) -> bool:
    return url.startswith(_AMQP10)


def mailbox_at(
    url: str, durability: Durability = Durability.DURABLE, patience: float = 0.0
) -> Mailbox:
    if by_amqp10(url):
        from penstock.jobs.queue.mailbox10 import Amqp10Mailbox

        return Amqp10Mailbox(url, patience)
    return AmqpMailbox(url, durability, patience)


class AmqpMailbox:
    def __init__(self, url: str, durability: Durability, patience: float) -> None:
        address = parse_address(url)
        self._token = uuid.uuid4().hex
        self._queue = f"penstock.jobs.client.{self._token}"
        self._requester = Requester(address, durability, patience)
        self._link = Link(address, "penstock jobs client", self._prepare, patience=patience)
        self._channel: Channel | None = None
        self._hear: Hear

    async def open(self, hear: Hear, fail: Fail) -> None:
        self._hear = hear
        await self._link.open()
        assert self._link.failed is not None
        self._link.failed.add_done_callback(lambda failed: fail(failed.result()))
        try:
            await self._requester.open()
        except BaseException:
            await self._link.close()
            raise

    async def send(self, request: Request, options: Options, form: Form) -> None:
        await self._requester.send(request, form, Envelope(reply_to=self._token, options=options))

    async def cancel(self, identity: str) -> None:
        await self._requester.cancel(identity)

    async def close(self) -> None:
        await self._requester.close()
        if self._channel is not None:
            with suppress(PenstockError):  # without a connection it goes when its time is over
                await self._channel.delete_queue(self._queue)
        await self._link.close()

    async def _prepare(self, connection: Connection) -> None:
        self._channel = channel = await connection.channel()
        await channel.declare_exchange(RESPONSES, "direct")
        await channel.declare_queue(self._queue, arguments={"x-expires": _QUEUE_MILLISECONDS})
        await channel.bind(self._queue, RESPONSES, self._token)

        def take(contents: list[Content]) -> None:
            for content in contents:
                self._hear(content.body)
            channel.ack(contents[-1].tag, multiple=True)

        channel.on_deliveries = take
        await channel.consume(self._queue, "responses")
