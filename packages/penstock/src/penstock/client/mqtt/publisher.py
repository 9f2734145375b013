"""Publishing with acknowledgements, across reconnects.

Messages are sent in order, as many at a time as the broker's receive maximum allows. After a lost
connection, unacknowledged messages are sent again: by paho as the same messages if the session is
persistent, else as new ones. A message with QoS 0 is done when it is written.

`post` waits while the window is full. A refused message fails with the broker's reason. A broker of
MQTT 3.1.1 can only close the connection, so in-flight messages fail after a few reconnects without
an acknowledgement.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode

from penstock.client.errors import FabricClosed
from penstock.client.mqtt.connection import MqttRecoveringConnection
from penstock.client.mqtt.endpoint import (
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
from penstock.wire.mqtt.reason_codes import ReasonCode

#: Reconnects in a row without a single acknowledgement.
MAX_FRUITLESS_RECONNECTS: Final = 3

#: Reasons to close a connection because of a message.
_MESSAGE_ERRORS: Final = frozenset(
    {
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.TOPIC_NAME_INVALID,
        ReasonCode.PACKET_TOO_LARGE,
        ReasonCode.PAYLOAD_FORMAT_INVALID,
        ReasonCode.RETAIN_NOT_SUPPORTED,
        ReasonCode.QOS_NOT_SUPPORTED,
    }
)


@dataclass(slots=True, eq=False)
class UnacknowledgedMessage:
    topic: str
    body: bytes
    properties: Properties | None = None
    qos: int = 1
    retain: bool = False
    mandatory: bool = False  #: it is an error if no client is subscribed
    confirmed: asyncio.Future[None] | None = None

    def settle(self, error: BaseException | None = None) -> None:
        if self.confirmed is not None:
            settle(self.confirmed, error)


class MqttPublisher:
    def __init__(self, connection: MqttRecoveringConnection) -> None:
        self._connection = connection
        self._window = InflightWindow()
        self._queue: deque[UnacknowledgedMessage] = deque()
        self._inflight: dict[int, UnacknowledgedMessage] = {}
        self._fruitless_reconnects = 0
        self._failure: PenstockError | None = None
        connection.join(self)
        connection.on_acknowledged = self._acknowledged

    async def post(self, message: UnacknowledgedMessage) -> asyncio.Future[None]:
        """Send when there is space in the window; the future is done at the acknowledgement."""
        confirmed = message.confirmed = await self._window.admit(len(message.body), self._ready)
        self._queue.append(message)
        self._pump()
        return confirmed

    async def _ready(self) -> None:
        await self._connection.open()
        if self._failure is not None:
            raise self._failure

    def paused(self, lost: MqttConnectionLost) -> None:
        for packet_id, message in list(self._inflight.items()):
            if message.qos == 0:  # paho does not send it again
                self._take(packet_id).settle()
        if not self._inflight:
            return
        self._fruitless_reconnects += 1
        if lost.reason in _MESSAGE_ERRORS:
            self._drop(reason_code_error(self._what(), lost.reason))
        elif self._fruitless_reconnects == MAX_FRUITLESS_RECONNECTS:
            self._drop(
                ProtocolError(
                    f"{self._what()}: {self._connection} closed the connection "
                    f"{MAX_FRUITLESS_RECONNECTS} times instead of acknowledging it; check the "
                    "user's permissions and the size of the message"
                )
            )
        elif not self._connection.is_persistent:
            # The next session is a new one: send the messages as new ones.
            self._connection.wire.forget_unacknowledged()
            self._queue.extendleft(
                self._take(packet_id) for packet_id in reversed(list(self._inflight))
            )

    def renewed(self, session_present: bool) -> None:
        """paho sends its unacknowledged messages again, before new ones."""

    async def resume(self, session_present: bool) -> None:
        # After the other listeners have resumed, and paho has sent its messages again.
        asyncio.get_running_loop().call_soon(self._pump)

    def failed(self, error: PenstockError) -> None:
        self._failure = error
        if isinstance(error, FabricClosed):
            error = FabricClosed("the fabric was closed before the broker acknowledged the message")
        for message in (*self._inflight.values(), *self._queue):
            message.settle(error)
        while self._inflight:
            self._take(next(iter(self._inflight)))
        self._queue.clear()

    def _pump(self) -> None:
        while self._queue and (connack := self._connection.connack) is not None:
            if len(self._inflight) >= min(connack.receive_maximum, WINDOW_MESSAGES):
                return
            message = self._queue.popleft()
            if message.confirmed is None or message.confirmed.done():
                continue  # cancelled by its sender
            if (reason := _unsupported_by_broker(message, connack)) is not None:
                message.settle(reason)
                continue
            try:
                packet_id = self._connection.wire.publish(
                    message.topic, message.body, message.qos, message.retain, message.properties
                )
            except Exception as error:  # paho has several for invalid arguments
                message.settle(PreconditionFailed(f"{message.topic!r} cannot be sent: {error}"))
                continue
            self._inflight[packet_id] = message
            self._connection.expect()

    def _acknowledged(self, packet_id: int, reason: PahoReasonCode) -> None:
        if packet_id not in self._inflight:
            return
        self._fruitless_reconnects = 0
        message = self._take(packet_id)
        refused = reason.value >= ReasonCode.UNSPECIFIED_ERROR
        if refused or (message.mandatory and reason.value == ReasonCode.NO_MATCHING_SUBSCRIBERS):
            message.settle(reason_code_error(f"{message.topic!r}", reason))
        else:
            message.settle()
        asyncio.get_running_loop().call_soon(self._pump)

    def _take(self, packet_id: int) -> UnacknowledgedMessage:
        self._connection.received()
        return self._inflight.pop(packet_id)

    def _drop(self, error: PenstockError) -> None:
        """Fail all in-flight messages."""
        self._connection.wire.forget_unacknowledged()
        self._fruitless_reconnects = 0
        while self._inflight:
            self._take(next(iter(self._inflight))).settle(error)

    def _what(self) -> str:
        topics = list(dict.fromkeys(message.topic for message in self._inflight.values()))
        return repr(topics[0]) + (f" and {len(topics) - 1} others" if topics[1:] else "")


def _unsupported_by_broker(
    message: UnacknowledgedMessage, connack: ConnackProperties
) -> PenstockError | None:
    """The error for a message beyond the limits in the CONNACK."""
    if message.qos > connack.maximum_qos:
        return Unsupported(f"the broker does not support QoS above {connack.maximum_qos}")
    if message.retain and not connack.retains:
        return Unsupported("the broker does not support retained messages")
    size, most = len(message.body) + len(message.topic), connack.maximum_bytes
    if size > most:
        return ContentTooLarge(f"{message.topic!r}: {size:,} bytes, the broker accepts {most:,}")
    return None
