"""Bulk publishing with confirms, over a blocking connection that reconnects.

Messages are sent in large writes. After a lost connection, unconfirmed messages are sent again in
order: at least once, with the same message id. `flush` returns when all are confirmed. A message
that is unroutable, or that the broker refuses, ends the publishing with an error.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import Final, Self

from penstock.client.amqp091.blocking_connection import BlockingConnection
from penstock.client.retry import RECONNECT
from penstock.core.errors import (
    AccessRefused,
    NoRoute,
    PenstockError,
    PreconditionFailed,
    QueueFull,
    ResourceExhausted,
)
from penstock.core.retry import retry
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.errors import is_transient_amqp_error
from penstock.wire.amqp091.frames import FRAME_METHOD, AmqpFrame, encode_basic_publish
from penstock.wire.amqp091.methods import MethodArguments

#: Limits of unconfirmed messages and bytes.
WINDOW_MESSAGES: Final = 4096
WINDOW_BYTES: Final = 8 << 20
#: Messages are collected to writes of this size.
WRITE_BYTES: Final = 64 << 10
#: If the broker does not read for this long, check for input; fail after so many checks.
_STALL_SECONDS: Final = 1.0
_MAX_STALLS: Final = 60
#: How long a broker may block publishers: an operator has to free memory or disk space.
ALARM_SECONDS: Final = 600.0
#: How long after a reconnect a broker may lack queues, because it is still starting.
_STARTUP_GRACE_SECONDS: Final = 30.0


class BulkPublisher:
    """Opened by the constructor."""

    def __init__(
        self,
        address: AmqpAddress,
        name: str = "penstock publisher",
        *,
        mandatory: bool,
        retry_seconds: float,
        alarm_seconds: float = ALARM_SECONDS,
    ) -> None:
        """With `mandatory`, an unroutable message is an error. `retry_seconds` is how long to retry
        while the broker is unreachable, `alarm_seconds` how long it may block publishers."""
        self._address = address
        self._name = name
        self._mandatory = mandatory
        self._retry_seconds = retry_seconds
        self._alarm_seconds = alarm_seconds
        self._unconfirmed: deque[bytes] = deque()  # the frames of each message
        self._unconfirmed_bytes = 0
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._confirmed = 0  # delivery tags up to here, on this connection
        self._ahead: set[int] = set()  # confirmed out of order
        self._starting_until = 0.0  # after a reconnect
        self._frame_max = 0
        self._connection, self._channel = self._connect(time.monotonic() + retry_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._connection.close() if kind is None else self._connection.abandon()

    def declare_exchange(self, name: str, kind: str) -> None:
        """A durable exchange, or the existing one if it cannot be declared like this."""
        self.flush()
        deadline = time.monotonic() + self._retry_seconds
        while True:
            try:
                self._connection.call(
                    self._channel, methods.EXCHANGE_DECLARE, exchange=name, type=kind, durable=True
                )
                return None
            except (AccessRefused, PreconditionFailed):
                return self._reconnect(deadline)  # the refusal has closed the channel
            except (OSError, EOFError, PenstockError) as error:
                self._recover(error, deadline)

    def publish(self, route: bytes, header: bytes, body: bytes) -> None:
        """Send a message with the next write; `route` is exchange and routing key, encoded."""
        frames = encode_basic_publish(
            self._channel, route, header, body, self._frame_max, mandatory=self._mandatory
        )
        self._unconfirmed.append(frames)
        self._unconfirmed_bytes += len(frames)
        self._unsent.append(frames)
        self._unsent_bytes += len(frames)
        if self._unsent_bytes >= WRITE_BYTES:
            self._proceed(WINDOW_MESSAGES, WINDOW_BYTES)

    def flush(self) -> None:
        """Returns when the broker has confirmed all messages."""
        self._proceed(0, 0)

    def _proceed(self, most: int, most_bytes: int) -> None:
        """Send what is unsent, then wait until no more than so much is unconfirmed."""
        deadline = time.monotonic() + self._retry_seconds
        while True:
            try:
                while self._connection.blocked or self._connection.has_input():
                    self._read()
                unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
                if unsent:
                    self._send(memoryview(b"".join(unsent)))
                while len(self._unconfirmed) > most or self._unconfirmed_bytes > most_bytes:
                    self._read()
                self._starting_until = 0.0
                return
            except (OSError, EOFError, PenstockError) as error:
                self._recover(error, deadline)

    def _send(self, data: memoryview) -> None:
        """Handles input while the broker does not read: it may have blocked the connection."""
        connection = self._connection
        stalls = 0
        while data:
            if sent := connection.send_some(data, _STALL_SECONDS):
                data, stalls = data[sent:], 0
            elif connection.blocked or connection.has_input():
                self._read()
                stalls = 0
            elif (stalls := stalls + 1) >= _MAX_STALLS:
                raise TimeoutError(f"{self._address} does not read what it is sent")

    def _read(self) -> None:
        """Wait for input, and handle confirms and returned messages."""
        for frame in self._receive_blocked() if self._connection.blocked else self._receive():
            if frame.kind != FRAME_METHOD or frame.channel != self._channel:
                continue
            received = self._connection.check(frame)
            assert received is not None
            match received.id:
                case methods.BASIC_ACK:
                    self._settle(received.arguments.delivery_tag, received.arguments.multiple)
                case methods.BASIC_NACK:
                    raise QueueFull(
                        f"{self._address} refused a message: the queue is full or cannot store it"
                    )
                case methods.BASIC_RETURN:
                    raise self._returned(received.arguments)

    def _receive(self) -> list[AmqpFrame]:
        timeout = max(self._retry_seconds, 1.0)
        if self._starting_until:
            # A starting broker may never confirm messages to queues that it had not loaded yet.
            timeout = min(timeout, _STARTUP_GRACE_SECONDS / 3)
        return self._connection.receive(timeout)

    def _receive_blocked(self) -> list[AmqpFrame]:
        try:
            return self._connection.receive(self._alarm_seconds)
        except TimeoutError:
            raise ResourceExhausted(
                f"{self._address} is short of memory or disk space and has blocked publishers for "
                f"{self._alarm_seconds:g} s; free some (`penstock broker status` and `rabbitmqctl "
                "status` show the alarm), then publish again"
            ) from None

    def _returned(self, returned: MethodArguments) -> Exception:
        words = (
            f"unroutable message: no queue is bound to exchange {returned.exchange!r} with a key "
            f"that matches {returned.routing_key!r}; bind one, or set mandatory=false"
        )
        # A broker that has just started may not have loaded all queues: retry.
        starting = time.monotonic() < self._starting_until
        return ConnectionAbortedError(words) if starting else NoRoute(words)

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
            self._unconfirmed_bytes -= len(self._unconfirmed.popleft())

    # Connections.

    def _connect(self, deadline: float) -> tuple[BlockingConnection, int]:
        policy = replace(RECONNECT, total=deadline - time.monotonic())
        return retry(self._open_channel, policy, is_transient_amqp_error)

    def _open_channel(self) -> tuple[BlockingConnection, int]:
        connection = BlockingConnection(self._address, self._name)
        try:
            channel = connection.open_channel()
            connection.call(channel, methods.CONFIRM_SELECT)
        except BaseException:
            connection.abandon()
            raise
        self._frame_max = connection.frame_max
        return connection, channel

    def _recover(self, error: Exception, deadline: float) -> None:
        """Reconnect if the error is transient and the deadline has not passed."""
        if not is_transient_amqp_error(error) or time.monotonic() > deadline:
            raise error
        self._reconnect(deadline)

    def _reconnect(self, deadline: float) -> None:
        """Open a new connection and send all unconfirmed messages again."""
        self._connection.abandon()
        self._connection, self._channel = self._connect(deadline)
        if not self._starting_until:
            self._starting_until = time.monotonic() + _STARTUP_GRACE_SECONDS
        self._confirmed = 0
        self._ahead.clear()
        self._unsent = list(self._unconfirmed)
        self._unsent_bytes = self._unconfirmed_bytes
