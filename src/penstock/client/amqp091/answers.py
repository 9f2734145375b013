"""Who waits for which answer: a broker gives those of one kind in the order of the calls.

Whoever waits may give up (cancel) at any time. The answer still comes, and is nobody else's: it is
taken in the name of the one who left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, TypeVar, cast

from pamqp.base import Frame as Method

from penstock.client.amqp091.confirms import fail
from penstock.core.errors import PenstockError
from penstock.wire.amqp091.messages import Content

_Answer = TypeVar("_Answer", bound=Method)


class Answers:
    """Of one channel, to its calls and to its gets."""

    __slots__ = ("_calls", "_gets")

    def __init__(self) -> None:
        self._calls: dict[type[Method], deque[asyncio.Future[Any]]] = {}
        self._gets: deque[tuple[asyncio.Future[Content | None], bool]] = deque()

    def expect(self, answer: type[_Answer]) -> asyncio.Future[_Answer]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.setdefault(answer, deque()).append(future)
        return cast("asyncio.Future[_Answer]", future)

    def expect_message(self, *, no_ack: bool) -> asyncio.Future[Content | None]:
        future: asyncio.Future[Content | None] = asyncio.get_running_loop().create_future()
        self._gets.append((future, no_ack))
        return future

    def hear(self, answer: Method) -> bool:
        """Whether somebody had asked for it."""
        waiting = self._calls.get(type(answer))
        if not waiting:
            return False
        future = waiting.popleft()
        if not future.done():
            future.set_result(answer)
        return True

    def hear_message(self, content: Content | None) -> bool:
        """Whether it has to be given back, for who asked for it has left."""
        if not self._gets:
            return False
        future, no_ack = self._gets.popleft()
        if future.done():
            return content is not None and not no_ack
        future.set_result(content)
        return False

    def fail(self, error: PenstockError) -> None:
        waiting = [each for of in self._calls.values() for each in of]
        waiting += [future for future, _ in self._gets]
        self._calls.clear()
        self._gets.clear()
        for future in waiting:
            fail(future, error)
