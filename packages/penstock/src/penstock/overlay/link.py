"""A link: one connection to a neighbour, whoever of the two made it.

Both say who they are, then each asks the other to be its neighbour (`OVERLAY-CONNECT_REQ`) and
agrees to it (`OVERLAY-CONNECT_ACK`). Who is agreed with tells all it has advertised and subscribed
to for the other, and at the end that this was all (`OVERLAY-STATE`). From then on publications come
out of the neighbour's queue, each with a receipt, and leave it when the neighbour confirms.

A receipt of a publication that is on disk is its place in the queue's log, doubled: the same each
time it is sent, so that the neighbour knows it again. Others have odd ones.
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
)
from penstock.content.formatter import format_publication
from penstock.content.messages import Publication, Value
from penstock.content.parser import parse_publication
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.errors import FrameError, LinkRefused, PenstockError
from penstock.core.logs import get_logger
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
    from penstock.broker.contract import Queue
    from penstock.broker.vhost import VirtualHost
    from penstock.overlay.link_registry import LinkRegistry
    from penstock.overlay.neighbours import Neighbour
    from penstock.overlay.persistence import Watermark


#: Publications that may be on their way to a neighbour and not confirmed.
UNCONFIRMED_WINDOW: Final = 4096
#: What may gather in one turn; the rest stays where it lies until that is out.
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
        """To a broker that is to be `wanted`. One that connected to us has `opened` already, as a
        user who is checked again (`check_user`) for as long as the link is there."""
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
        self._agreement = NeighbourHandshake(self)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._channel: Channel | None = None
        self._unanswered: dict[int, Delivery] = {}
        self._deferred: list[int] = []
        self._odd = 1
        self._choked = False  # the neighbour does not read
        self._bytes = 0  # of publications that have gathered
        self._mark: Watermark
        self.reason: PenstockError | None = None
        self._over = False

    # The socket.

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
                    self._take(frame)
                elif isinstance(frame, ConfirmFrame):
                    self._answered(frame.receipt)
                elif isinstance(frame, OpenFrame):
                    self._opened(frame)
                elif isinstance(frame, ErrorFrame):
                    _log.error("a neighbour refused", neighbour=self.wanted, reason=frame.text)
                    self._answered(frame.receipt)
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
        """End the link if the user it came as may no longer have one."""
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
        self._leave()
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

    # What is said.

    def _opened(self, opened: OpenFrame) -> None:
        self.peer = opened
        self.links.check(self, opened)
        self._mark = self.links.marks.of(opened.id, opened.store)
        self._agreement.ask(opened.id)

    def note(self, envelope: PadresEnvelope) -> None:
        """What needs no receipt."""
        self._send(encode_message_frame(encode_envelope(envelope)))

    def _take(self, frame: MessageFrame) -> None:
        if self._agreement.take(frame.envelope):
            return
        neighbour, receipt = self.neighbour, frame.receipt
        if neighbour is None:
            raise FrameError("a message before both agreed to be neighbours")
        known = receipt and not receipt & 1 and receipt <= self._mark.number
        outcome = 0 if known else self.links.receive(neighbour, frame.envelope)
        if not receipt:
            return
        if outcome & REJECTED and self.links.router.next_hops.stopped:
            self._deferred.append(receipt)  # it is safe nowhere before the broker is resumed
            return
        if not receipt & 1 and not known and not self._deferred:
            self._mark.move(receipt)
        self._confirm_safe(receipt)

    def stopped_or_resumed(self) -> None:
        self._request()
        if not self.links.router.next_hops.stopped:
            deferred, self._deferred = self._deferred, []
            for receipt in deferred:
                self._confirm_safe(receipt)

    def _confirm_safe(self, receipt: int) -> None:
        if receipt & 1:
            self._confirm(receipt)
        else:
            self.links.kernel.committer.after(lambda: self._confirm(receipt))

    def _confirm(self, receipt: int) -> None:
        if not self._over:
            self._send(encode_frame(ConfirmFrame(receipt)))

    # What the neighbour gets.

    def agreed(self, neighbour: Neighbour, line: QueuedNeighbourChannel) -> None:
        """Both are neighbours: what waits may go."""
        self.neighbour = neighbour
        self._channel = Channel(self, line.queue)
        line.queue.channel_open(self._channel, {"exclusive": True})
        self._request()

    def _request(self) -> None:
        if self._channel is not None:
            stopped = self.links.router.next_hops.stopped
            room = len(self._unanswered) < UNCONFIRMED_WINDOW and self._bytes < WRITE_BUFFER_BYTES
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
        self._unanswered[receipt] = delivery
        body = cast(bytes, fragment.body)
        self._bytes += len(body)
        if len(self._unanswered) >= UNCONFIRMED_WINDOW or self._bytes >= WRITE_BUFFER_BYTES:
            channel.driver.channel_request(channel, 0)
        self._send(encode_message_frame(body, receipt))

    def _answered(self, receipt: int) -> None:
        delivery = self._unanswered.pop(receipt, None)
        if delivery is not None and self._channel is not None:
            self._channel.driver.channel_confirm(self._channel, delivery)
            if len(self._unanswered) == UNCONFIRMED_WINDOW - 1:
                self._request()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        """Nothing is posted here."""

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        """Somebody has deleted the queue: the next link makes a new one."""
        self._channel = None
        self._unanswered.clear()
        self.end(PenstockError(str(error)))

    # The end.

    def end(self, reason: PenstockError | None, send: bool = True) -> None:
        """Close, saying why."""
        if self._over:
            return
        self.reason = reason
        if send:
            code = 0 if reason is None else error_code(reason)
            self._send(encode_frame(CloseFrame(code, "" if reason is None else str(reason))))
        self._leave()
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _leave(self) -> None:
        if self._over:
            return
        self._over = True
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.driver.channel_close(channel)  # first: what is given back is not for us
            for delivery in reversed(self._unanswered.values()):
                channel.driver.channel_failure(channel, delivery, requeue=True)
            self._unanswered.clear()
        self.links.left(self)


def _keep_alive(connection: socket.socket | None) -> None:
    """A machine that is switched off says nothing: the system finds out, within a minute."""
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


# The way to a neighbour: a durable queue for publications, and the link while there is one.
#
# What is published waits in the queue until the neighbour has confirmed it; what the neighbour is
# otherwise told goes straight to the link, and is told anew when there is another.

#: What the queues of neighbours are called, before the id.
QUEUE_PREFIX: Final = "overlay."

_CONTENT_TYPE: Final = "application/x-padres-envelope"


class QueuedNeighbourChannel:
    def __init__(self, vhost: VirtualHost, neighbour: str) -> None:
        self._vhost = vhost
        self._name = QUEUE_PREFIX + neighbour
        self._route = encode_route("", self._name)
        self.link: OverlayLink | None = None  #: once both have agreed to be neighbours

    @property
    def queue(self) -> Queue:
        """Made when it is first needed, and again if somebody has deleted it."""
        queue = self._vhost.queues.get(self._name)
        return queue or self._vhost.declare_queue(self._name, durable=True)

    def send(self, envelope: PadresEnvelope) -> int:
        if envelope.kind is EnvelopeKind.PUBLISH:
            return self.queue.push(self._message(envelope))
        if self.link is not None:
            self.link.note(envelope)
        return ACCEPTED

    def put(self, envelope: PadresEnvelope) -> None:
        if self.link is not None:
            self.link.note(envelope)

    def forget(self) -> None:
        self._vhost.delete_queue(self._name)

    def _message(self, envelope: PadresEnvelope) -> Message:
        body = encode_envelope(envelope)
        mode = 2 if envelope.durable else 1
        properties = BasicProperties(content_type=_CONTENT_TYPE, delivery_mode=mode)
        flags = PERSISTENT if envelope.durable else 0
        return Message(self._route, encode_header(properties, len(body)), body, flags)


# How two brokers become neighbours, over a connection that is there already.
#
#     ask      OVERLAY-CONNECT_REQ   be my neighbour; I am `fromID` (`fromURI` is PADRES')
#     answer   OVERLAY-CONNECT_ACK   you are mine: tell me what you have
#     tell     advertisements and subscriptions, then OVERLAY-STATE: these were all
#
# Each does it in its own time. They are publications of class BROKER_CONTROL that cross this link
# and no other. Brokers whose rules do not go together are not neighbours. What was told is listed
# in pieces, the last of which says so.

CONTROL_FILTER: Final = "[class,BROKER_CONTROL]"
CONNECT_REQUEST: Final = "OVERLAY-CONNECT_REQ"
CONNECT_ACK: Final = "OVERLAY-CONNECT_ACK"
STATE_COMMAND: Final = "OVERLAY-STATE"
#: How many are listed in one piece.
STATE_BATCH: Final = 10_000


class NeighbourHandshake:
    def __init__(self, link: OverlayLink) -> None:
        self._link = link
        self._name = ""
        self._on_command: set[tuple[EnvelopeKind, str, str]] = set()

    def ask(self, name: str) -> None:
        self._name = name
        self._say(CONNECT_REQUEST)

    def take(self, envelope: PadresEnvelope) -> bool:
        """Whether a message was about being neighbours."""
        if envelope.kind is not EnvelopeKind.PUBLISH or envelope.ttl != 0:
            return False
        if not envelope.text.startswith(CONTROL_FILTER):
            return False
        attributes = parse_publication(envelope.text).attributes
        command = attributes.get("command")
        if command not in (CONNECT_REQUEST, CONNECT_ACK, STATE_COMMAND):
            return False
        if attributes.get("fromID") != self._name:
            raise FrameError(f"{attributes.get('fromID')} speaks on the link of {self._name}")
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
                f"{self._name} routes by {rules}, and this broker by {ours}: "
                "all brokers of an overlay have the same settings"
            )
        neighbour, line = self._link.links.joined(self._link, self._name)
        self._say(CONNECT_ACK)
        self._link.agreed(neighbour, line)

    def _send_state(self) -> None:
        neighbour = self._link.neighbour
        if neighbour is None:
            raise FrameError(f"{self._name} agrees before it was asked")
        router = self._link.links.router
        neighbour.came_up(router.next_hops.clock())
        told = router.propagate_all(neighbour)
        listed = [[one.kind.name, one.id, one.tree] for one in told]
        for start in range(0, max(1, len(listed)), STATE_BATCH):
            last = int(start + STATE_BATCH >= len(listed))
            self._say(
                STATE_COMMAND, json.dumps(listed[start : start + STATE_BATCH]).encode(), last=last
            )
        _log.info("linked", neighbour=self._name, told=len(told))

    def _on_state_batch(self, payload: bytes, last: bool) -> None:
        try:
            for kind, identity, tree in json.loads(payload):
                self._on_command.add((EnvelopeKind[kind], identity, tree))
        except (ValueError, KeyError, TypeError) as error:
            raise FrameError(f"{self._name} told all, but not what: {error}") from None
        if last:
            told, self._on_command = self._on_command, set()
            self._link.links.router.retain_only(self._name, told)

    def _say(self, command: str, payload: bytes = b"", **more: Value) -> None:
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
        self._link.note(
            PadresEnvelope(EnvelopeKind.PUBLISH, text, payload=payload, ttl=0, durable=False)
        )
