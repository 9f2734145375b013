"""A blocking connection that takes messages to exchanges, until the broker has them safe.

Messages go out in large writes and are kept until the broker has confirmed them. A connection that
breaks is opened again, and what was not confirmed goes out once more, in order: at least once, with
the same message ids. What the broker refuses is an error at the next `publish` or `flush`.
"""

from __future__ import annotations

import itertools
import select
import socket
import time
import uuid
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from pamqp import commands
from pamqp.base import Frame as Method

from penstock.client.errors import BrokerUnreachable
from penstock.core.addresses import PORTS
from penstock.core.errors import (
    AccessRefused,
    ConnectionForced,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ProtocolError,
    QueueFull,
)
from penstock.pump.bulk.frames import METHOD, Answers, method, publish, read_method

CHANNEL: Final = 1
#: How many messages the broker may owe a confirm for, and what is gathered before it is sent.
WINDOW: Final = 4096
WRITE_BYTES: Final = 64 << 10
_READ_BYTES: Final = 1 << 16
_ANSWER_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.5
_NAMES: Final = {403: AccessRefused, 404: NotFound, 406: PreconditionFailed, 530: NotAllowed}
_PASSING: Final = (320, 541)  #: the broker goes, or is just coming


class Link:
    """Opened by the constructor; `patience` is how long a broker may be away."""

    def __init__(self, url: str, patience: float) -> None:
        self._url = urlsplit(url)
        self._patience = patience
        self._waiting: deque[bytes] = deque()  #: what is not confirmed, in order
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._confirmed = 0
        self._ahead: set[int] = set()  #: confirmed, and others before them are not yet
        self._blocked = False
        self._declared: set[str] = set()
        ours = uuid.uuid4().hex[:20]
        self._ids = (f"{ours}{number:012x}" for number in itertools.count())
        self._connect(time.monotonic() + patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def publish(
        self,
        route: tuple[str, str],
        content: tuple[bytes, str],
        headers: Mapping[str, Any],
        ttl: float | None = None,
    ) -> None:
        """Take a message; waits while too many are under way."""
        if route[0] not in self._declared:
            self._declare(route[0])
        frames = publish(CHANNEL, self._frame_max, route, content, headers, next(self._ids), ttl)
        self._waiting.append(frames)
        self._unsent.append(frames)
        self._unsent_bytes += len(frames)
        if self._unsent_bytes >= WRITE_BYTES:
            self._proceed(WINDOW)

    def flush(self) -> None:
        """Returns when all of it is safe."""
        self._proceed(0)

    def _declare(self, exchange: str) -> None:
        """A topic exchange, or whatever is there where it may not be declared so."""
        self.flush()
        declare = commands.Exchange.Declare(0, exchange, "topic", durable=True)
        try:
            self._socket.sendall(method(CHANNEL, declare))
            self._until(commands.Exchange.DeclareOk)
        except (AccessRefused, PreconditionFailed):
            self._again(time.monotonic() + self._patience)
        self._declared.add(exchange)

    def _proceed(self, most: int) -> None:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                while self._blocked or select.select([self._socket], [], [], 0)[0]:
                    self._hear()
                unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
                if unsent:
                    self._socket.sendall(b"".join(unsent))
                while len(self._waiting) > most:
                    self._hear()
                return
            except (OSError, ConnectionForced):
                if time.monotonic() > deadline:
                    raise
                self._again(deadline)

    def _hear(self) -> None:
        for frame in self._receive():
            if frame.kind == METHOD:
                match self._checked(read_method(frame.payload)):
                    case commands.Basic.Ack(delivery_tag=tag, multiple=multiple):
                        self._settle(tag or 0, bool(multiple))
                    case commands.Basic.Nack():
                        raise QueueFull("the broker refused an announcement: a queue is full")

    def _settle(self, tag: int, multiple: bool) -> None:
        upto = self._confirmed
        if multiple:
            upto = max(upto, tag)
            self._ahead = {each for each in self._ahead if each > tag}
        else:
            self._ahead.add(tag)
        while upto + 1 in self._ahead:
            upto += 1
            self._ahead.discard(upto)
        while self._confirmed < upto:
            self._confirmed += 1
            self._waiting.popleft()

    def _again(self, deadline: float) -> None:
        self._socket.close()
        time.sleep(_PAUSE_SECONDS)
        self._connect(deadline)
        self._confirmed = 0
        self._ahead.clear()
        self._unsent = list(self._waiting)

    def _connect(self, deadline: float) -> None:
        while True:
            try:
                self._open()
                return
            except (OSError, ConnectionForced):
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _open(self) -> None:
        url = self._url
        host, port = url.hostname or "localhost", url.port or PORTS["amqp"]
        try:
            self._socket = socket.create_connection((host, port), _ANSWER_SECONDS)
        except OSError as error:
            raise BrokerUnreachable(host, port, error.strerror or str(error)) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = Answers()
        self._blocked = False
        user, password = unquote(url.username or "guest"), unquote(url.password or "guest")
        login = commands.Connection.StartOk(
            {"product": "Penstock's pump", "capabilities": {"connection.blocked": True}},
            "PLAIN",
            f"\0{user}\0{password}",
            "en_US",
        )
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._until(commands.Connection.Start)
        self._socket.sendall(method(0, login))
        tune = self._until(commands.Connection.Tune)
        self._frame_max = tune.frame_max or 1 << 17
        # No heartbeats: it may take minutes to compute the sum of one file.
        tuned = commands.Connection.TuneOk(tune.channel_max or 0, self._frame_max, 0)
        vhost = unquote(url.path[1:]) or "/"
        self._socket.sendall(method(0, tuned) + method(0, commands.Connection.Open(vhost)))
        self._until(commands.Connection.OpenOk)
        self._socket.sendall(method(CHANNEL, commands.Channel.Open()))
        self._until(commands.Channel.OpenOk)
        self._socket.sendall(method(CHANNEL, commands.Confirm.Select()))
        self._until(commands.Confirm.SelectOk)

    def _until(self, answer: type[Method]) -> Any:
        while True:
            for frame in self._receive():
                if frame.kind == METHOD:
                    found = self._checked(read_method(frame.payload))
                    if isinstance(found, answer):
                        return found

    def _receive(self) -> list[Any]:
        # A broker that has asked us to wait may take its time.
        self._socket.settimeout(None if self._blocked else _ANSWER_SECONDS)
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the broker has closed the connection")
        return list(self._answers.feed(data))

    def _checked(self, found: Method) -> Method:
        match found:
            case commands.Connection.Close() | commands.Channel.Close():
                words = f"{found.reply_text} ({found.reply_code})"
                if found.reply_code in _PASSING:
                    raise ConnectionForced(words)
                raise _NAMES.get(found.reply_code or 0, ProtocolError)(words)
            case commands.Connection.Blocked():
                self._blocked = True
            case commands.Connection.Unblocked():
                self._blocked = False
        return found
