"""Sends requests, wishes about them, and takes dead letters up again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from penstock.client.amqp091.channel import Channel
from penstock.client.amqp091.connection import Connection
from penstock.client.amqp091.link import Link
from penstock.core.errors import PenstockError
from penstock.core.properties import PERSISTENT, Properties, decode_header
from penstock.jobs.errors import FormError
from penstock.jobs.forms import Form, Written, read_request, write_request
from penstock.jobs.model import Request
from penstock.jobs.queue.envelope import ERROR, Envelope, raised, read_envelope, request_properties
from penstock.jobs.queue.topology import (
    CONTROL,
    TYPES,
    Durability,
    dead_name,
    declare,
    declare_control,
    request_name,
)
from penstock.jobs.queue.wishes import Wish, write_wish
from penstock.wire.amqp091.address import Address
from penstock.wire.amqp091.faults import Lost
from penstock.wire.amqp091.messages import Content


class Requester:
    """Over a connection of its own, which mends itself; nothing is sent twice knowingly."""

    def __init__(
        self,
        address: Address,
        durability: Durability = Durability.DURABLE,
        patience: float = 0.0,
    ) -> None:
        self._durability = durability
        self._link = Link(address, "penstock jobs requester", self._prepare, patience=patience)
        self._channel: Channel | None = None
        self._declared: set[str] = set()

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def send(
        self, request: Request, form: Form = Form.JSON, envelope: Envelope | None = None
    ) -> Written:
        """Returns when the broker has it safe. What was sent."""
        written = write_request(request, form)
        said = request_properties(written, request.id, envelope or Envelope())
        await self.send_written(request.type, written.body, said)
        return written

    async def send_written(self, kind: str, body: bytes, said: Properties) -> None:
        """A connection that breaks before the broker's word is tried again, with the same id."""
        while True:
            try:
                channel = await self._ready(kind)
                return await channel.publish_safely(
                    request_name(kind), "", body, said, mandatory=True
                )
            except Lost:
                continue

    async def cancel(self, identity: str, run: int | None = None) -> None:
        """Tell all workers, and those that will come; of a run, where it is known which."""
        body = write_wish(Wish(identity, time.time(), run))
        while True:
            try:
                connection = await self._link.connection()
                if CONTROL not in self._declared:
                    await declare_control(connection)
                    self._declared.add(CONTROL)
                channel = await self._ready(None)
                return await channel.publish_safely(
                    "", CONTROL, body, Properties("application/json", delivery_mode=PERSISTENT)
                )
            except Lost:
                continue

    async def dead(
        self, kinds: Collection[str] = TYPES, most: int = 1_000
    ) -> list[tuple[Request, str]]:
        """Dead letters, and what was wrong; they stay where they are."""
        found: list[tuple[Request, str]] = []

        def look(content: Content, request: Request) -> bool:
            headers = decode_header(content.header).headers or {}
            found.append((request, str(headers.get(ERROR, ""))))
            return False

        await self._walk(kinds, most, look)
        return found

    async def replay(self, ids: Collection[str] | None = None, most: int = 10_000) -> list[str]:
        """Ask for dead ones again, all or some. Which."""
        raised_ids: list[str] = []

        def wanted(_: Content, request: Request) -> bool:
            if ids is not None and request.id not in ids:
                return False
            raised_ids.append(request.id)
            return True

        await self._walk(TYPES, most, wanted)
        return raised_ids

    async def _walk(
        self, kinds: Collection[str], most: int, wanted: Callable[[Content, Request], bool]
    ) -> None:
        """Look at dead letters; those that are wanted are sent again and leave, in one go."""
        connection = await self._link.connection()
        for kind in kinds:
            await self._ready(kind)
            channel = await connection.channel()
            await channel.select()
            for _ in range(most):
                content = await channel.get(dead_name(kind))
                if content is None:
                    break
                request = _request(content)
                if request is None or not wanted(content, request):
                    continue
                said = decode_header(content.header)
                again = raised(said, read_envelope(said).run + 1)
                channel.publish(request_name(kind), "", content.body, again)
                channel.ack(content.tag)
            await channel.commit()
            await channel.close()  # what was looked at goes back

    async def _prepare(self, connection: Connection) -> None:
        self._channel = channel = await connection.channel()
        await channel.confirm()
        self._declared.clear()

    async def _ready(self, kind: str | None) -> Channel:
        connection = await self._link.connection()
        if kind is not None and kind not in self._declared:
            await declare(connection, kind, self._durability)
            self._declared.add(kind)
        assert self._channel is not None
        if self._channel.failure is not None and not connection.lost.done():
            self._channel = await connection.channel()  # it was closed for a mistake
            await self._channel.confirm()
        return self._channel


def _request(content: Content) -> Request | None:
    try:
        return read_request(content.body)[0]
    except (FormError, PenstockError):
        return None
