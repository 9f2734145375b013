"""A requester's place on a broker over AMQP 1.0, by the client's patterns.

Exchanges cannot be declared this way: an `amqp://` worker or client has to have been there before,
once. Responses that come while the connection is broken are not heard, and priorities are for
brokers that are told of them over `amqp://`.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Final

from penstock.client import Fabric, Inflow, connect
from penstock.core.errors import NotFound, PenstockError
from penstock.jobs.forms import Form, write_request
from penstock.jobs.model import Request
from penstock.jobs.options import Options, write_options
from penstock.jobs.queue.control10 import tell_wish
from penstock.jobs.queue.envelope import REPLY_TO
from penstock.jobs.queue.mailbox import Fail, Hear
from penstock.jobs.queue.topology import RESPONSES, request_name
from penstock.jobs.queue.wishes import Wish

#: A broker of this protocol may close the connection instead of saying what is not there.
_OPEN_SECONDS: Final = 10.0


class Amqp10Mailbox:
    """Keeps `penstock.jobs.queue.mailbox.Mailbox`."""

    def __init__(self, url: str, patience: float = 0.0) -> None:
        self._url = url
        self._token = uuid.uuid4().hex
        self._fabric: Fabric = connect(url, patience=patience)
        self._listening: asyncio.Task[None] | None = None

    async def open(self, hear: Hear, fail: Fail) -> None:
        await self._fabric.open()
        inflow = self._fabric.subscribe(self._token, exchange=RESPONSES)
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await inflow.open()
        except TimeoutError:
            await self._fabric.close()
            raise NotFound(f"there is no exchange {RESPONSES}: start a worker first") from None
        except BaseException:
            await self._fabric.close()
            raise
        self._listening = asyncio.create_task(self._listen(inflow, hear, fail))

    async def send(self, request: Request, options: Options, form: Form) -> None:
        written = write_request(request, form)
        headers = write_options(options) | {REPLY_TO: self._token}
        requests = self._fabric.publisher("", exchange=request_name(request.type))
        await requests.send(written.body, headers=headers)

    async def cancel(self, identity: str) -> None:
        await tell_wish(self._url, Wish(identity, time.time()))

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self._fabric.close()

    async def _listen(self, inflow: Inflow, hear: Hear, fail: Fail) -> None:
        try:
            async for message in inflow:  # until it is closed
                hear(message.body)
        except PenstockError as error:
            fail(error)
