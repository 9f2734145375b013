"""The fabric, for those who wait."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from penstock.client import fabric as patterns
from penstock.client import message as asynchronous
from penstock.client import schemes
from penstock.client.blocking.flows import Inflow, Outflow, Service
from penstock.client.blocking.loop import LoopThread
from penstock.client.blocking.message import Message
from penstock.client.body import Body
from penstock.client.fabric import Headers, Start

#: Answers a request; called in a thread of a pool, so it may wait.
Handler = Callable[[Message], Body]


class Fabric:
    """The patterns of `penstock.client.Fabric`. Options are passed on as they are."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, patience: float) -> None:
        self._loop = LoopThread()

        async def build() -> patterns.Fabric:
            return schemes.connect(url, tls=tls, patience=patience)

        self._fabric = self._loop.begin(build())

    @property
    def blocked(self) -> bool:
        async def ask() -> bool:
            return self._fabric.blocked

        return self._loop.wait(ask())

    def publish(
        self, address: str, body: Body, *, headers: Headers | None = None, **options: Any
    ) -> None:
        self._loop.wait(self._fabric.publish(address, body, headers=headers, **options))

    def publisher(self, address: str, **options: Any) -> Outflow:
        return Outflow(self._loop, self._fabric.publisher(address, **options))

    def subscribe(self, *patterns: str, name: str | None = None, **options: Any) -> Inflow:
        return Inflow(self._loop, self._fabric.subscribe(*patterns, name=name, **options))

    def push(self, queue: str) -> Outflow:
        return Outflow(self._loop, self._fabric.push(queue))

    def pull(self, queue: str, **options: Any) -> Inflow:
        return Inflow(self._loop, self._fabric.pull(queue, **options))

    def request(
        self, service: str, body: Body = b"", *, headers: Headers | None = None, **options: Any
    ) -> Message:
        asking = self._fabric.request(service, body, headers=headers, **options)
        return Message(self._loop, self._loop.wait(asking))

    def reply(self, service: str, **options: Any) -> Inflow:
        return Inflow(self._loop, self._fabric.reply(service, **options))

    def serve(self, service: str, handler: Handler, **options: Any) -> Service:
        async def answer(request: asynchronous.Message) -> Body:
            return await asyncio.to_thread(handler, Message(self._loop, request))

        return Service(self._loop, self._fabric.serve(service, answer, **options))

    def stream(self, name: str, *, subjects: Sequence[str] = (), **options: Any) -> Outflow:
        return Outflow(self._loop, self._fabric.stream(name, subjects=subjects, **options))

    def replay(self, stream: str, start: Start = "first", **options: Any) -> Inflow:
        return Inflow(self._loop, self._fabric.replay(stream, start, **options))

    def open(self) -> Self:
        self._loop.begin(self._fabric.open())
        return self

    def close(self) -> None:
        self._loop.end(self._fabric.close())

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(url: str, *, tls: ssl.SSLContext | None = None, patience: float = 0.0) -> Fabric:
    """The fabric behind a URL, to be opened by `with`; see `penstock.client.connect`."""
    return Fabric(url, tls, patience)
