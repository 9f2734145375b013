"""Requests and their replies, over any protocol.

A request is repeated after a lost connection, with the same message id, because its reply may be
lost. So a service can receive a request twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from penstock.client.errors import FabricClosed, NoReply, NoService, RemoteError
from penstock.client.message import Body, Headers, ReceivedMessage
from penstock.client.retry import RECONNECT
from penstock.core.errors import NoRoute, NotFound, PenstockError

#: The `type` of a reply that is an error.
ERROR_TYPE: Final = "penstock.error"


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    service: str
    body: Body
    headers: Headers | None
    timeout: float | None
    message_id: str
    correlation_id: str


class ReplyLost(Exception):
    """The connection was lost, and perhaps the reply with it."""


#: Sends a request. `NoRoute` and `NotFound`, raised or set on the future, mean that no program
#: serves it.
SendRequest = Callable[[ServiceRequest, asyncio.Future[ReceivedMessage]], Awaitable[None]]


class PendingRequests:
    """Matches replies with requests by correlation id; any number of requests at a time."""

    def __init__(self, send: SendRequest) -> None:
        self._send = send
        self._replies: dict[str, asyncio.Future[ReceivedMessage]] = {}

    async def request(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> ReceivedMessage:
        request = ServiceRequest(service, body, headers, timeout, uuid4().hex, uuid4().hex)
        try:
            async with asyncio.timeout(timeout):
                return await self._exchange(request)
        except TimeoutError:
            raise NoReply(f"{service!r} has not replied within {timeout:g} s") from None

    def received(self, correlation_id: str, reply: ReceivedMessage, kind: str | None) -> None:
        """A reply has arrived; `kind` is its type."""
        future = self._replies.get(correlation_id)
        if future is None or future.done():
            return
        if kind == ERROR_TYPE:
            future.set_exception(read_error(reply))
        else:
            future.set_result(reply)

    def interrupted(self) -> None:
        """The connection was lost: pending requests are sent again."""
        self._fail(ReplyLost())

    def failed(self, error: PenstockError) -> None:
        if isinstance(error, FabricClosed):
            error = FabricClosed("the fabric was closed before the reply arrived")
        self._fail(error)

    async def _exchange(self, request: ServiceRequest) -> ReceivedMessage:
        delays = None  # after a lost connection, the service may need time to return as well
        while True:
            reply: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
            self._replies[request.correlation_id] = reply
            try:
                await self._send(request, reply)
                return await reply
            except (NoRoute, NotFound):
                if delays is None:
                    raise NoService(f"no program serves {request.service!r}") from None
                await asyncio.sleep(next(delays))
            except ReplyLost:
                delays = RECONNECT.delays()
            finally:
                del self._replies[request.correlation_id]

    def _fail(self, error: Exception) -> None:
        for reply in self._replies.values():
            fail_reply(reply, error)


def fail_reply(reply: asyncio.Future[ReceivedMessage], error: BaseException) -> None:
    if not reply.done():
        reply.set_exception(error)
        reply.exception()  # retrieved: the request may be over


def error_body(error: BaseException) -> dict[str, str]:
    """The body of a reply that is an error."""
    if isinstance(error, RemoteError):
        return {"error": error.kind, "reason": error.reason}
    return {"error": type(error).__name__, "reason": str(error)}


def read_error(reply: ReceivedMessage) -> RemoteError:
    try:
        error = reply.json()
        return RemoteError(str(error["error"]), str(error["reason"]))
    except (ValueError, TypeError, KeyError):
        return RemoteError("Error", reply.body.decode(errors="replace"))
