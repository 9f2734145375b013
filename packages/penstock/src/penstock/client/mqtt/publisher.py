"""Sending until it is acknowledged.

What is posted waits here for its turn, in order; as many messages are on their way as the broker
takes ahead of its acknowledgements. When a connection breaks before the word came, they are sent
again: by paho, as the same message, where the session lasts, and else as new ones. Quality 0 asks
for no word: such a message is done with when it is written.

How much may wait is bounded: `post` waits for room. A message the broker refuses fails with its
reason. Where the broker has no words but to close the connection (MQTT 3.1.1), what was on its way
fails after a few of those: sending it for ever would help nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from penstock.client.errors import FabricClosed
from penstock.client.mqtt.connection import MqttRecoveringConnection
from penstock.client.mqtt.endpoint import (
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    PACKET_TOO_LARGE,
    PAYLOAD_FORMAT_INVALID,
    QOS_NOT_SUPPORTED,
    RETAIN_NOT_SUPPORTED,
    TOPIC_NAME_INVALID,
    UNSPECIFIED_ERROR,
    MqttConnectionLost,
    reason_code_error,
)
from penstock.client.mqtt.transport import ConnackProperties
from penstock.client.sender import WINDOW_MESSAGES, InflightWindow, settle
from penstock.core.errors import (
    ContentTooLarge,
    PenstockError,
    PreconditionFailed,
    ProtocolError,
    Unsupported,
)

#: Connections that may end one after the other without a single acknowledgement.
MAX_FRUITLESS_RECONNECTS: Final = 3

#: With these a broker ends a connection because of what it was sent.
_MESSAGE_ERRORS: Final = frozenset(
    {
        NOT_AUTHORIZED,
        TOPIC_NAME_INVALID,
        PACKET_TOO_LARGE,
        PAYLOAD_FORMAT_INVALID,
        RETAIN_NOT_SUPPORTED,
        QOS_NOT_SUPPORTED,
    }
)


@dataclass(slots=True, eq=False)
class UnacknowledgedMessage:
    """A message on its way, and the promise given for it."""

    topic: str
    body: bytes
    properties: Properties | None = None
    qos: int = 1
    retain: bool = False
    mandatory: bool = False  #: that nobody is subscribed is an error
    confirmed: asyncio.Future[None] | None = None

    def settle(self, error: BaseException | None = None) -> None:
        if self.confirmed is not None:
            settle(self.confirmed, error)


class MqttPublisher:
    def __init__(self, connection: MqttRecoveringConnection) -> None:
        self._connection = connection
        self._window = InflightWindow()
        self._queue: deque[UnacknowledgedMessage] = deque()
        self._flying: dict[int, UnacknowledgedMessage] = {}
        self._fruitless = 0
        self._failure: PenstockError | None = None
        connection.join(self)
        connection.on_acknowledged = self._acknowledged

    async def post(self, posting: UnacknowledgedMessage) -> asyncio.Future[None]:
        """Send when there is space in the window; the future is done at the acknowledgement."""
        confirmed = posting.confirmed = await self._window.admit(len(posting.body), self._ready)
        self._queue.append(posting)
        self._pump()
        return confirmed

    async def _ready(self) -> None:
        await self._connection.open()
        if self._failure is not None:
            raise self._failure

    def paused(self, lost: MqttConnectionLost) -> None:
        for packet_id, posting in list(self._flying.items()):
            if posting.qos == 0:  # nothing was promised, and paho does not keep it
                self._land(packet_id).settle()
        if not self._flying:
            return
        self._fruitless += 1
        if lost.reason in _MESSAGE_ERRORS:
            self._drop(reason_code_error(self._what(), lost.reason))
        elif self._fruitless == MAX_FRUITLESS_RECONNECTS:
            self._drop(
                ProtocolError(
                    f"{self._what()}: {self._connection} closed the connection "
                    f"{MAX_FRUITLESS_RECONNECTS} times instead of acknowledging it; "
                    "is the user allowed to, and is it not too large?"
                )
            )
        elif not self._connection.lasting:
            # The next session knows nothing of this one: what is still wanted is sent as new.
            self._connection.wire.forget_unacknowledged()
            self._queue.extendleft(
                self._land(packet_id) for packet_id in reversed(list(self._flying))
            )

    def renewed(self, session_present: bool) -> None:
        """paho sends again what it keeps, before anything new."""

    async def resume(self, session_present: bool) -> None:
        # Once the parts after us have resumed as well, and paho has sent again what it keeps.
        asyncio.get_running_loop().call_soon(self._pump)

    def failed(self, error: PenstockError) -> None:
        self._failure = error
        if isinstance(error, FabricClosed):
            error = FabricClosed("the fabric was closed before the broker had the message")
        for posting in (*self._flying.values(), *self._queue):
            posting.settle(error)
        while self._flying:
            self._land(next(iter(self._flying)))
        self._queue.clear()

    def _pump(self) -> None:
        while self._queue and (connack := self._connection.connack) is not None:
            if len(self._flying) >= min(connack.receive_maximum, WINDOW_MESSAGES):
                return
            posting = self._queue.popleft()
            if posting.confirmed is None or posting.confirmed.done():
                continue  # whoever sent it has given up
            if (reason := _unsupported_by_broker(posting, connack)) is not None:
                posting.settle(reason)
                continue
            try:
                packet_id = self._connection.wire.publish(
                    posting.topic, posting.body, posting.qos, posting.retain, posting.properties
                )
            except Exception as error:  # paho has many for what cannot be written as MQTT
                posting.settle(PreconditionFailed(f"{posting.topic!r} cannot be sent: {error}"))
                continue
            self._flying[packet_id] = posting
            self._connection.expect()

    def _acknowledged(self, packet_id: int, reason: ReasonCode) -> None:
        if packet_id not in self._flying:
            return
        self._fruitless = 0
        posting = self._land(packet_id)
        refused = reason.value >= UNSPECIFIED_ERROR
        if refused or (posting.mandatory and reason.value == NO_MATCHING_SUBSCRIBERS):
            posting.settle(reason_code_error(f"{posting.topic!r}", reason))
        else:
            posting.settle()
        asyncio.get_running_loop().call_soon(self._pump)

    def _land(self, packet_id: int) -> UnacknowledgedMessage:
        self._connection.met()
        return self._flying.pop(packet_id)

    def _drop(self, error: PenstockError) -> None:
        """Give up what is on its way."""
        self._connection.wire.forget_unacknowledged()
        self._fruitless = 0
        while self._flying:
            self._land(next(iter(self._flying))).settle(error)

    def _what(self) -> str:
        topics = list(dict.fromkeys(posting.topic for posting in self._flying.values()))
        return repr(topics[0]) + (f" and {len(topics) - 1} others" if topics[1:] else "")


def _unsupported_by_broker(
    posting: UnacknowledgedMessage, connack: ConnackProperties
) -> PenstockError | None:
    """Why this broker would not take the message, by its own account."""
    if posting.qos > connack.maximum_qos:
        return Unsupported(f"the broker has no quality of service above {connack.maximum_qos}")
    if posting.retain and not connack.retains:
        return Unsupported("the broker retains no messages")
    size, most = len(posting.body) + len(posting.topic), connack.maximum_bytes
    if size > most:
        return ContentTooLarge(f"{posting.topic!r}: {size:,} bytes, and the broker takes {most:,}")
    return None
