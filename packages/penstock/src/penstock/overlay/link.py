"""A link: one connection to a neighbour, made by either side.

Both send their open frame, then each asks the other to be its neighbour (`OVERLAY-CONNECT_REQ`) and
agrees (`OVERLAY-CONNECT_ACK`). After an agreement a broker sends all its advertisements and
subscriptions for the other, and then `OVERLAY-STATE`. Then publications are sent from the
neighbour's queue, each with a receipt, and removed when the neighbour confirms.

The receipt of a logged publication is twice its position in the queue's log: the same each time it
is sent, so that the neighbour detects duplicates. Other receipts are odd.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from penstock.broker.contract import (
    ACCEPTED,
    PERSISTENT,
    REJECTED,
    UNLIMITED_CREDIT,
    Channel,
    Delivery,
    Fragment,
    Message,
    Queue,
)
from penstock.broker.vhost import VirtualHost
from penstock.content.formatter import format_publication
from penstock.content.messages import Publication, Value
from penstock.content.parser import parse_publication
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.errors import FrameError, LinkRefused, PenstockError
from penstock.core.logs import get_logger
from penstock.overlay.neighbours import Neighbour
from penstock.overlay.persistence import Watermark
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope, encode_envelope
from penstock.wire.padres.errors import error_code
from penstock.wire.padres.frames import (
    PROTOCOL_HEADER,
    CloseFrame,
    ConfirmFrame,
    ErrorFrame,
    MessageFrame,
    OpenFrame,
    PadresFrameReader,
    encode_frame,
    encode_message_frame,
)

if TYPE_CHECKING:
    from penstock.overlay.link_registry import LinkRegistry

#: Unconfirmed publications of a neighbour.
UNCONFIRMED_WINDOW: Final = 4096
#: Bytes per write batch; the rest stays in the queue until they are sent.
WRITE_BUFFER_BYTES: Final = 1024 * 1024

_log = get_logger("penstock.overlay")


class OverlayLink(asyncio.Protocol):
    def __init__(
        self,
        links: LinkRegistry,
        wanted: str,
        opened: OpenFrame | None = None,
        check_user: Callable[[], None] | None = None,
    ) -> None:
        """`wanted` is the expected id of the neighbour. A broker that connected to us has sent
        `opened`; `check_user` raises once its user may no longer link brokers."""
        self.links = links
        self.dialled = opened is None
        self.wanted = wanted
        self.peer = opened
        self.neighbour: Neighbour | None = None
        self.ended: asyncio.Future[PenstockError | None] = links.loop.create_future()
        self._check_user = check_user
        self._write_batch = links.kernel.write_batch
        largest = links.largest
        self._reader = (
            PadresFrameReader(largest) if opened is None else PadresFrameReader.after_open(largest)
        )
        self._handshake = NeighbourHandshake(self)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._channel: Channel | None = None
        self._unconfirmed: dict[int, Delivery] = {}
        self._deferred: list[int] = []
        self._odd = 1
        self._choked = False  # the write buffer is full
        self._bytes = 0  # of pending publications
        self._mark: Watermark
        self.reason: PenstockError | None = None
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _keep_alive(transport.get_extra_info("socket"))
        self._send(
            PROTOCOL_HEADER + encode_frame(self.links.introduction(self.wanted, self.dialled))
        )
        if self.peer is not None:
            self._opened(self.peer)
        self._write_batch.flush()

    def data_received(self, data: bytes) -> None:
        self.links.kernel.metrics.bytes_in += len(data)
        try:
            if self._check_user is not None:
                self._check_user()
            for frame in self._reader.frames(data):
                if isinstance(frame, MessageFrame):
                    self._on_message(frame)
                elif isinstance(frame, ConfirmFrame):
                    self._on_confirm(frame.receipt)
                elif isinstance(frame, OpenFrame):
                    self._opened(frame)
                elif isinstance(frame, ErrorFrame):
                    _log.error(
                        "publication refused by neighbour", neighbour=self.wanted, reason=frame.text
                    )
                    self._on_confirm(frame.receipt)
                elif isinstance(frame, CloseFrame):
                    self.end(self.links.closed_by(frame), send=False)
                if self._over:
                    break
        except PenstockError as error:
            self.end(error)
        except Exception as error:
            _log.error("link failed", neighbour=self.wanted, exc_info=error)
            self.end(PenstockError("internal error"))
        self._write_batch.end_read()

    def check_user(self) -> None:
        """Close the link if its user may no longer have one."""
        try:
            if self._check_user is not None:
                self._check_user()
        except PenstockError as error:
            self.end(error)

    def pause_writing(self) -> None:
        self._choked = True
        self._request()

    def resume_writing(self) -> None:
        self._choked = False
        self._request()
        self._write_batch.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._detach()
        if not self.ended.done():
            self.ended.set_result(self.reason)
        self._write_batch.flush()

    def flush(self) -> None:
        out, self._out = self._out, []
        if self._bytes >= WRITE_BUFFER_BYTES:
            self._write_batch.call_soon(self._request)
        self._bytes = 0
        if out and self._transport is not None and not self._transport.is_closing():
            data = b"".join(out)
            self.links.kernel.metrics.bytes_out += len(data)
            self._transport.write(data)

    def _send(self, data: bytes) -> None:
        if not self._out:
            self._write_batch.to_flush.append(self)
        self._out.append(data)

    def _opened(self, opened: OpenFrame) -> None:
        self.peer = opened
        self.links.check(self, opened)
        self._mark = self.links.marks.of(opened.id, opened.store)
        self._handshake.ask(opened.id)

    def send(self, envelope: PadresEnvelope) -> None:
        """Send without a receipt."""
        self._send(encode_message_frame(encode_envelope(envelope)))

    def _on_message(self, frame: MessageFrame) -> None:
        if self._handshake.handle(frame.envelope):
            return
        neighbour, receipt = self.neighbour, frame.receipt
        if neighbour is None:
            raise FrameError("message before the neighbour handshake")
        known = receipt and not receipt & 1 and receipt <= self._mark.number
        outcome = 0 if known else self.links.receive(neighbour, frame.envelope)
        if not receipt:
            return
        if outcome & REJECTED and self.links.router.next_hops.stopped:
            self._deferred.append(receipt)  # confirmed after the broker is resumed
            return
        if not receipt & 1 and not known and not self._deferred:
            self._mark.move(receipt)
        self._confirm_when_stored(receipt)

    def stopped_or_resumed(self) -> None:
        self._request()
        if not self.links.router.next_hops.stopped:
            deferred, self._deferred = self._deferred, []
            for receipt in deferred:
                self._confirm_when_stored(receipt)

    def _confirm_when_stored(self, receipt: int) -> None:
        if receipt & 1:
            self._confirm(receipt)
        else:
            self.links.kernel.committer.after(lambda: self._confirm(receipt))

    def _confirm(self, receipt: int) -> None:
        if not self._over:
            self._send(encode_frame(ConfirmFrame(receipt)))

    def agreed(self, neighbour: Neighbour, line: QueuedNeighbourChannel) -> None:
        """Start sending queued publications."""
        self.neighbour = neighbour
        self._channel = Channel(self, line.queue)
        line.queue.channel_open(self._channel, {"exclusive": True})
        self._request()

    def _request(self) -> None:
        if self._channel is not None:
            stopped = self.links.router.next_hops.stopped
            room = len(self._unconfirmed) < UNCONFIRMED_WINDOW and self._bytes < WRITE_BUFFER_BYTES
            free = room and not (self._choked or stopped)
            self._channel.driver.channel_request(self._channel, UNLIMITED_CREDIT if free else 0)

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        assert delivery is not None, "the channel is not settled"
        if delivery.offset >= 0:
            receipt = 2 * (delivery.offset + 1)
        else:
            receipt = self._odd
            self._odd += 2
        self._unconfirmed[receipt] = delivery
        body = cast(bytes, fragment.body)
        self._bytes += len(body)
        if len(self._unconfirmed) >= UNCONFIRMED_WINDOW or self._bytes >= WRITE_BUFFER_BYTES:
            channel.driver.channel_request(channel, 0)
        self._send(encode_message_frame(body, receipt))

    def _on_confirm(self, receipt: int) -> None:
        delivery = self._unconfirmed.pop(receipt, None)
        if delivery is not None and self._channel is not None:
            self._channel.driver.channel_confirm(self._channel, delivery)
            if len(self._unconfirmed) == UNCONFIRMED_WINDOW - 1:
                self._request()

    def channel_confirm(self, channel: Channel, receipt: int) -> None: ...

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        """The queue was deleted; the next link declares a new one."""
        self._channel = None
        self._unconfirmed.clear()
        self.end(PenstockError(str(error)))

    def end(self, reason: PenstockError | None, send: bool = True) -> None:
        """Close with a reason."""
        if self._over:
            return
        self.reason = reason
        if send:
            code = 0 if reason is None else error_code(reason)
            self._send(encode_frame(CloseFrame(code, "" if reason is None else str(reason))))
        self._detach()
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _detach(self) -> None:
        if self._over:
            return
        self._over = True
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.driver.channel_close(channel)  # first, so that requeued messages are not for us
            for delivery in reversed(self._unconfirmed.values()):
                channel.driver.channel_failure(channel, delivery, requeue=True)
            self._unconfirmed.clear()
        self.links.left(self)


def _keep_alive(connection: socket.socket | None) -> None:
    """Let the system detect a lost peer within a minute."""
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


#: The prefix of neighbours' queues.
QUEUE_PREFIX: Final = "overlay."

_CONTENT_TYPE: Final = "application/x-padres-envelope"


class QueuedNeighbourChannel:
    """A durable queue of publications for a neighbour, and its link, if there is one.

    Other messages go to the link only, and are sent again over a new link.
    """

    def __init__(self, vhost: VirtualHost, neighbour: str) -> None:
        self._vhost = vhost
        self._name = QUEUE_PREFIX + neighbour
        self._route = encode_route("", self._name)
        self.link: OverlayLink | None = None  #: after the handshake

    @property
    def queue(self) -> Queue:
        """Declared on demand, also after it was deleted."""
        queue = self._vhost.queues.get(self._name)
        return queue or self._vhost.declare_queue(self._name, durable=True)

    def send(self, envelope: PadresEnvelope) -> int:
        if envelope.kind is EnvelopeKind.PUBLISH:
            return self.queue.push(self._message(envelope))
        if self.link is not None:
            self.link.send(envelope)
        return ACCEPTED

    def put(self, envelope: PadresEnvelope) -> None:
        if self.link is not None:
            self.link.send(envelope)

    def delete_queue(self) -> None:
        self._vhost.delete_queue(self._name)

    def _message(self, envelope: PadresEnvelope) -> Message:
        body = encode_envelope(envelope)
        mode = 2 if envelope.durable else 1
        properties = BasicProperties(content_type=_CONTENT_TYPE, delivery_mode=mode)
        flags = PERSISTENT if envelope.durable else 0
        return Message(self._route, encode_header(properties, len(body)), body, flags)


CONTROL_FILTER: Final = "[class,BROKER_CONTROL]"
CONNECT_REQUEST: Final = "OVERLAY-CONNECT_REQ"
CONNECT_ACK: Final = "OVERLAY-CONNECT_ACK"
STATE_COMMAND: Final = "OVERLAY-STATE"
#: Entries per OVERLAY-STATE message.
STATE_BATCH: Final = 10_000


class NeighbourHandshake:
    """The handshake of neighbours, by publications of class BROKER_CONTROL on this link only.

        OVERLAY-CONNECT_REQ   be my neighbour; I am `fromID` (`fromURI` is PADRES')
        OVERLAY-CONNECT_ACK   agreed; send your advertisements and subscriptions
        OVERLAY-STATE         the list of all that were sent, in parts

    Each side does it independently. Brokers with different rules refuse each other.
    """

    def __init__(self, link: OverlayLink) -> None:
        self._link = link
        self._name = ""
        self._listed: set[tuple[EnvelopeKind, str, str]] = set()

    def ask(self, name: str) -> None:
        self._name = name
        self._send_command(CONNECT_REQUEST)

    def handle(self, envelope: PadresEnvelope) -> bool:
        """Returns whether it was a message of the handshake."""
        if envelope.kind is not EnvelopeKind.PUBLISH or envelope.ttl != 0:
            return False
        if not envelope.text.startswith(CONTROL_FILTER):
            return False
        attributes = parse_publication(envelope.text).attributes
        command = attributes.get("command")
        if command not in (CONNECT_REQUEST, CONNECT_ACK, STATE_COMMAND):
            return False
        if attributes.get("fromID") != self._name:
            raise FrameError(
                f"{attributes.get('fromID')} sent a message on the link of {self._name}"
            )
        if command == CONNECT_REQUEST:
            self._on_connect_request(str(attributes.get("rules", "")))
        elif command == CONNECT_ACK:
            self._send_state()
        else:
            self._on_state_batch(envelope.payload, last=attributes.get("last") == 1)
        return True

    def _on_connect_request(self, rules: str) -> None:
        ours = self._link.links.router.rules.agreed
        if rules and rules != ours:
            raise LinkRefused(
                f"{self._name} has rules {rules}, this broker {ours}: "
                "all brokers of an overlay must have the same settings"
            )
        neighbour, line = self._link.links.joined(self._link, self._name)
        self._send_command(CONNECT_ACK)
        self._link.agreed(neighbour, line)

    def _send_state(self) -> None:
        neighbour = self._link.neighbour
        if neighbour is None:
            raise FrameError(f"{self._name} sent CONNECT_ACK, but this broker has sent no CONNECT")
        router = self._link.links.router
        neighbour.mark_up(router.next_hops.clock())
        sent = router.propagate_all(neighbour)
        listed = [[one.kind.name, one.id, one.tree] for one in sent]
        for start in range(0, max(1, len(listed)), STATE_BATCH):
            last = int(start + STATE_BATCH >= len(listed))
            self._send_command(
                STATE_COMMAND, json.dumps(listed[start : start + STATE_BATCH]).encode(), last=last
            )
        _log.info("link established", neighbour=self._name, registrations=len(sent))

    def _on_state_batch(self, payload: bytes, last: bool) -> None:
        try:
            for kind, identity, tree in json.loads(payload):
                self._listed.add((EnvelopeKind[kind], identity, tree))
        except (ValueError, KeyError, TypeError) as error:
            raise FrameError(f"invalid OVERLAY-STATE of {self._name}: {error}") from None
        if last:
            sent, self._listed = self._listed, set()
            self._link.links.router.retain_only(self._name, sent)

    def _send_command(self, command: str, payload: bytes = b"", **more: Value) -> None:
        links = self._link.links
        attributes: dict[str, Value] = {
            "brokerID": self._name,
            "command": command,
            "fromID": links.router.broker_id,
            "fromURI": links.uri,
            "rules": links.router.rules.agreed,
            **more,
        }
        text = format_publication(Publication("BROKER_CONTROL", attributes))
        self._link.send(
            PadresEnvelope(EnvelopeKind.PUBLISH, text, payload=payload, ttl=0, durable=False)
        )
