"""A service: replies to requests with the results of a function."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Self

from penstock.client.errors import FabricClosed
from penstock.client.message import Body, ReceivedMessage
from penstock.client.receiver import MessageReceiver
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger

log = get_logger(__name__)

#: Returns the body of the reply; the requester gets its exception as a `RemoteError`.
ServiceHandler = Callable[[ReceivedMessage], Body | Awaitable[Body]]


class RequestService:
    """Calls the handler for each request, as many at a time as the prefetch of the receiver.

    It runs in the background of `async with`, or until the fabric is closed if it is awaited. An
    exception of the handler is logged and sent to the requester. The end of `async with` waits for
    the requests that are being processed.
    """

    def __init__(self, name: str, requests: MessageReceiver, handler: ServiceHandler) -> None:
        self._name = name
        self._requests = requests
        self._handler = handler
        self._receiver: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()

    def __await__(self) -> Generator[Any, None, None]:
        return self._run().__await__()

    async def __aenter__(self) -> Self:
        await self._requests.open()
        self._receiver = asyncio.create_task(self._receive())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._receiver is not None:
                self._receiver.cancel()
                await asyncio.gather(self._receiver, return_exceptions=True)
            await asyncio.gather(*self._running, return_exceptions=True)
        finally:
            for task in self._running:
                task.cancel()
            await self._requests.close()

    async def _run(self) -> None:
        async with self:
            assert self._receiver is not None
            await asyncio.shield(self._receiver)

    async def _receive(self) -> None:
        while True:
            try:
                message = await self._requests.receive()
            except FabricClosed:
                return
            task = asyncio.create_task(self._process(message))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _process(self, message: ReceivedMessage) -> None:
        try:
            result = self._handler(message)
            if inspect.isawaitable(result):
                result = await result
            if message.reply_to:
                await message.reply(b"" if result is None else result)
        except FabricClosed:
            return  # not acknowledged: the broker delivers the request again
        except Exception as error:
            log.exception("service failed", service=self._name)
            with contextlib.suppress(PenstockError):
                await message.fail(error)
        await message.ack()
