"""What comes and goes, for those who wait: the twins of the client's flows and services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from types import TracebackType
from typing import Self

from penstock.client import fabric as patterns
from penstock.client import message as asynchronous
from penstock.client.blocking.loop import LoopThread
from penstock.client.blocking.message import Message
from penstock.client.body import Body
from penstock.client.fabric import Headers


class Receipt:
    """The promise for a posted message."""

    __slots__ = ("_loop", "_safe")

    def __init__(self, loop: LoopThread, safe: Awaitable[None]) -> None:
        self._loop = loop
        self._safe = safe

    def wait(self) -> None:
        """Returns when the message is safe."""

        async def settled() -> None:
            await self._safe

        self._loop.wait(settled())


class Outflow:
    def __init__(self, loop: LoopThread, outflow: patterns.Outflow) -> None:
        self._loop = loop
        self._outflow = outflow

    def send(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> None:
        self._loop.wait(self._outflow.send(body, headers=headers, ttl=ttl, message_id=message_id))

    def post(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> Receipt:
        posting = self._outflow.post(body, headers=headers, ttl=ttl, message_id=message_id)
        return Receipt(self._loop, self._loop.wait(posting))

    def flush(self) -> None:
        self._loop.wait(self._outflow.flush())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.wait(self._outflow.__aexit__(kind, error, trace))


class Inflow:
    def __init__(self, loop: LoopThread, inflow: patterns.Inflow) -> None:
        self._loop = loop
        self._inflow = inflow

    def open(self) -> Self:
        self._loop.wait(self._inflow.open())
        return self

    def receive(self, timeout: float | None = None) -> Message:
        """The next message; raises `TimeoutError` when none comes in time."""
        receiving = asyncio.wait_for(self._inflow.receive(), timeout)
        return Message(self._loop, self._loop.wait(receiving))

    def close(self) -> None:
        self._loop.wait(self._inflow.close())

    def __iter__(self) -> Iterator[Message]:
        each = aiter(self._inflow)
        try:
            while (message := self._loop.wait(_next(each))) is not None:
                yield Message(self._loop, message)
        finally:
            self._loop.wait(each.aclose())

    def __enter__(self) -> Self:
        self._loop.wait(self._inflow.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.wait(self._inflow.__aexit__(kind, error, trace))


class Service:
    """Answers in the background of `with`; `wait` keeps a program there."""

    def __init__(self, loop: LoopThread, service: patterns.Service) -> None:
        self._loop = loop
        self._service = service

    def wait(self) -> None:
        """Returns when the fabric is closed."""

        async def serve() -> None:
            await self._service

        self._loop.wait(serve())

    def __enter__(self) -> Self:
        self._loop.wait(self._service.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.wait(self._service.__aexit__(kind, error, trace))


async def _next(each: AsyncIterator[asynchronous.Message]) -> asynchronous.Message | None:
    return await anext(each, None)
