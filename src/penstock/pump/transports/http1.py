"""One connection to an HTTP/1.1 server: a request, its answer, and then perhaps the next.

Bytes are cut into answers by httptools. A small answer comes with one wake-up of whoever waits for
it; of a large one, reading stops while what has come is not taken. Redirects, ranges and whom to
trust are for whoever asks.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

import httptools

from penstock.core.units import KiB, MiB

#: What may have come and not been taken.
_ENOUGH: Final = 1 * MiB
#: No server has so much to say before the content.
_LONGEST_HEAD: Final = 64 * KiB


class BrokenAnswer(OSError):
    """The server has broken off, or what it sends is no HTTP."""


class Unanswered(BrokenAnswer):
    """It has closed a connection that was kept open, before a word of an answer."""


class Connection(asyncio.Protocol):
    """Made by a pool; asks one thing at a time."""

    def __init__(self) -> None:
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        self.reusable = False  #: after an answer that is whole
        self.silent: float | None = None  #: since when somebody waits for the server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._head = 0
        self._answered = False  #: the head is there
        self._whole = True
        self._failure: BrokenAnswer | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._paused = False
        self._drained = asyncio.Event()
        self._drained.set()

    # For whoever asks.

    def ask(self, head: bytes) -> None:
        self.status, self.reason, self.headers = 0, "", {}
        self._pieces, self._size, self._head = [], 0, 0
        self._answered = self._whole = self.reusable = False
        self._parser = httptools.HttpResponseParser(self)
        self._write(head)

    async def send(self, piece: bytes) -> None:
        """More of what is asked with; waits while the server does not take it."""
        if self._failure is not None:
            raise self._failure
        self._write(piece)
        self.silent = self._loop.time()
        await self._drained.wait()
        self.silent = None

    async def answer(self) -> None:
        """Returns when there is a status, and headers."""
        while not self._answered:
            await self._news()

    async def read(self) -> bytes:
        """More of the content; nothing at its end."""
        while not self._pieces:
            if self._whole:
                return b""
            await self._news()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self._size = [], 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def fail(self, words: str) -> None:
        """It has no use any more: told to whoever waits."""
        if not self._whole and self._failure is None:
            self._failure = BrokenAnswer(words)
        self.close()
        self._wake()

    async def _news(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiting = self._loop.create_future()
        self.silent = self._loop.time()
        try:
            await self._waiting
        finally:
            self._waiting = self.silent = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # What the socket says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.silent is not None:
            self.silent = self._loop.time()
        if self._whole:  # nobody has asked
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.reusable = False  # should the answer be whole, there was something behind it
            self.fail(f"the answer is no HTTP: {error}")
            return
        self._head += 0 if self._answered else len(data)
        if self._head > _LONGEST_HEAD:
            self.fail(f"more than {_LONGEST_HEAD} bytes before the content")
            return
        if self._size > _ENOUGH and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        if not self._whole and self._failure is None:
            to_its_end = not {"content-length", "transfer-encoding"}.intersection(self.headers)
            if self._answered and to_its_end and error is None:
                self._whole = True
            elif self.status == 0 and not self._head:
                self._failure = Unanswered("the server has closed the connection")
            else:
                self._failure = BrokenAnswer("the server has broken off")
        self._drained.set()
        self._wake()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    # What the parser says; behind an answer that is whole, nobody has asked for anything.

    def on_message_begin(self) -> None:
        if self._whole:
            self.reusable = False

    def on_status(self, reason: bytes) -> None:
        if not self._whole:
            self.reason = reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._whole:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if not self._whole:
            self.status = self._parser.get_status_code()
            self._answered = self.status >= 200  # others come before the answer

    def on_body(self, body: bytes) -> None:
        if not self._whole:
            self._pieces.append(body)
            self._size += len(body)

    def on_message_complete(self) -> None:
        if not self._answered:
            self.headers = {}
        elif not self._whole:
            self._whole = True
            self.reusable = bool(self._parser.should_keep_alive())
