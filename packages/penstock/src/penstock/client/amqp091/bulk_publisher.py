"""Publishing in bulk with confirms, over a blocking connection that may break.

Messages go out in large writes and are kept until the broker has confirmed them; after a break
they are sent again, in order, on a new connection. So every message arrives at least once, and one
whose confirm was lost arrives twice, with the same message id. `flush` returns when all are safe. A
message that no queue takes, or that the broker refuses, ends the publishing with an error.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final, Self

from penstock.client.amqp091.blocking_connection import BlockingConnection
from penstock.core.errors import (
    AccessRefused,
    NoRoute,
    PenstockError,
    PreconditionFailed,
    QueueFull,
    ResourceExhausted,
)
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.errors import is_transient_amqp_error
from penstock.wire.amqp091.frames import FRAME_METHOD, AmqpFrame, encode_basic_publish
from penstock.wire.amqp091.methods import MethodArguments

#: Messages, and bytes, the broker may owe a confirm for.
WINDOW_MESSAGES: Final = 4096
WINDOW_BYTES: Final = 8 << 20
#: What is gathered before it is sent.
WRITE_BYTES: Final = 64 << 10
#: How long a broker may not read before we look what it has to say; and how often, if nothing.
_STALL_SECONDS: Final = 1.0
_MAX_STALLS: Final = 60
_RETRY_SECONDS: Final = 0.5
#: How long a broker that is short of memory or disk may ask to wait: somebody has to make room.
ALARM_SECONDS: Final = 600.0
#: How long after a break a broker may not know where to put a message.
_STARTUP_GRACE_SECONDS: Final = 30.0


class BulkPublisher:
    """Opened by the constructor; `patience` is how long a broker may be away, `alarm_patience` how
    long it may ask publishers to wait."""

    def __init__(
        self,
        address: AmqpAddress,
        purpose: str = "penstock publisher",
        *,
        mandatory: bool,
        patience: float,
        alarm_patience: float = ALARM_SECONDS,
    ) -> None:
        """Mandatory: what no queue takes is an error."""
        self._address = address
        self._purpose = purpose
        self._mandatory = mandatory
        self._patience = patience
        self._alarm_patience = alarm_patience
        self._unconfirmed: deque[bytes] = deque()  # the frames of each message
        self._unconfirmed_bytes = 0
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._confirmed = 0  # delivery tags up to here, on this connection
        self._ahead: set[int] = set()  # confirmed out of order
        self._starting_until = 0.0  # the broker was away, and may not be all there
        self._frame_max = 0
        self._connection, self._channel = self._connect(time.monotonic() + patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._connection.close() if kind is None else self._connection.abandon()

    def declare_exchange(self, name: str, kind: str) -> None:
        """A durable one; or whatever is there, where it may not be declared so."""
        self.flush()
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._connection.call(
                    self._channel, methods.EXCHANGE_DECLARE, exchange=name, type=kind, durable=True
                )
                return None
            except (AccessRefused, PreconditionFailed):
                return self._again(deadline)  # the channel went with the refusal
            except (OSError, EOFError, PenstockError) as error:
                self._cure(error, deadline)

    def publish(self, route: bytes, header: bytes, body: bytes) -> None:
        """Send a message, soon; `route` is the exchange and the routing key, two short strings."""
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
        """Returns when the broker has confirmed everything."""
        self._proceed(0, 0)

    def _proceed(self, most: int, most_bytes: int) -> None:
        """Send what waits, then wait until the broker owes confirms for no more than that."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                while self._connection.blocked or self._connection.has_input():
                    self._hear()
                unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
                if unsent:
                    self._send(memoryview(b"".join(unsent)))
                while len(self._unconfirmed) > most or self._unconfirmed_bytes > most_bytes:
                    self._hear()
                self._starting_until = 0.0
                return
            except (OSError, EOFError, PenstockError) as error:
                self._cure(error, deadline)

    def _send(self, data: memoryview) -> None:
        """A broker that does not read may have said why: then it is waited for."""
        connection = self._connection
        stalls = 0
        while data:
            if sent := connection.send_some(data, _STALL_SECONDS):
                data, stalls = data[sent:], 0
            elif connection.blocked or connection.has_input():
                self._hear()
                stalls = 0
            elif (stalls := stalls + 1) >= _MAX_STALLS:
                raise TimeoutError(f"{self._address} does not read what it is sent")

    def _hear(self) -> None:
        """Take in the broker's answers; waits for one."""
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
                        f"{self._address} refused a message: its queue is full, or cannot store it"
                    )
                case methods.BASIC_RETURN:
                    raise self._returned(received.arguments)

    def _receive(self) -> list[AmqpFrame]:
        patience = max(self._patience, 1.0)
        if self._starting_until:
            # It may have taken messages for queues it did not know yet, and never speak of them.
            patience = min(patience, _STARTUP_GRACE_SECONDS / 3)
        return self._connection.receive(patience)

    def _receive_blocked(self) -> list[AmqpFrame]:
        try:
            return self._connection.receive(self._alarm_patience)
        except TimeoutError:
            raise ResourceExhausted(
                f"{self._address} is short of memory or disk, and for {self._alarm_patience:g} s "
                "has asked publishers to wait; make room there (`penstock broker status` and "
                "`rabbitmqctl status` say of what), then publish again"
            ) from None

    def _returned(self, returned: MethodArguments) -> Exception:
        words = (
            f"no queue takes what is sent to exchange {returned.exchange!r} with "
            f"routing key {returned.routing_key!r}; bind one, or set mandatory=false"
        )
        # A broker that has just started may not have all its queues up: ask again.
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
        """A channel that confirms, as soon as there is a broker to have one on."""
        while True:
            try:
                return self._open_channel()
            except (OSError, EOFError, PenstockError) as error:
                if not is_transient_amqp_error(error) or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    def _open_channel(self) -> tuple[BlockingConnection, int]:
        connection = BlockingConnection(self._address, self._purpose)
        try:
            channel = connection.open_channel()
            connection.call(channel, methods.CONFIRM_SELECT)
        except BaseException:
            connection.abandon()
            raise
        self._frame_max = connection.frame_max
        return connection, channel

    def _cure(self, error: Exception, deadline: float) -> None:
        """Another connection, if that may help and there is still time."""
        if not is_transient_amqp_error(error) or time.monotonic() > deadline:
            raise error
        self._again(deadline)

    def _again(self, deadline: float) -> None:
        """A new connection, on which all that is not confirmed goes out again."""
        self._connection.abandon()
        self._connection, self._channel = self._connect(deadline)
        if not self._starting_until:
            self._starting_until = time.monotonic() + _STARTUP_GRACE_SECONDS
        self._confirmed = 0
        self._ahead.clear()
        self._unsent = list(self._unconfirmed)
        self._unsent_bytes = self._unconfirmed_bytes
