"""What a client publishes: packets in, messages to the exchange.

The packet reader calls here. A publication without properties takes the short way; topics whose
route is known, and allowed, are remembered (`routes.py`). What the client is told of each is
`answers.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.contract import MANDATORY, RETAIN, Channel, Message
from penstock.broker.destinations import LOGGED
from penstock.core.errors import AccessRefused, PreconditionFailed
from penstock.core.logs import get_logger
from penstock.terminals.mqtt.answers import KEPT, Answers
from penstock.terminals.mqtt.content import ContentOutlet, is_content, is_told_whole
from penstock.terminals.mqtt.encode import acknowledgement
from penstock.terminals.mqtt.fields import PUBACK, PUBCOMP, PUBREC, PUBREL
from penstock.terminals.mqtt.large import LargePublish
from penstock.terminals.mqtt.properties import Properties
from penstock.terminals.mqtt.reasons import MqttError, Reason
from penstock.terminals.mqtt.routes import Routes
from penstock.terminals.mqtt.translation import decoded, flags_for, header_for, plain_header

if TYPE_CHECKING:
    from penstock.broker.destinations import Exchange
    from penstock.terminals.mqtt.terminal import MqttTerminal

#: Sizes whose headers are remembered.
HEADERS: Final = 4096

_log = get_logger("penstock.mqtt")


class Inflow:
    __slots__ = (
        "_content",
        "_exchange",
        "_headers",
        "_known",
        "_large",
        "_producer",
        "_routes",
        "_terminal",
        "answers",
    )

    def __init__(self, terminal: MqttTerminal) -> None:
        self._terminal = terminal
        self._headers = terminal.mqtt.headers
        self._exchange: Exchange
        self._producer: Channel
        self._routes = Routes(terminal)
        self._known = self._routes.known
        self._large: LargePublish | None = None
        self._content: ContentOutlet | None = None  # few clients publish by content
        self.answers = Answers(terminal)

    def open(self, exchange: Exchange) -> None:
        """The client is let in."""
        self._exchange = exchange
        self._routes.exchange = exchange.name
        self._producer = Channel(self._terminal.outflow, exchange)
        most = self._terminal.host.kernel.settings.mqtt.receive_maximum
        self.answers.open(self._producer, most)
        exchange.channel_open(self._producer, {})

    def close(self) -> None:
        if self._large is not None:
            self._large.abandon()
            self._large = None
        self.answers.close()
        self._exchange.channel_close(self._producer)
        if self._content is not None:
            self._content.close()

    def forget_permissions(self) -> None:
        self._known.clear()

    # What the reader finds.

    def on_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, payload: bytes
    ) -> None:
        if properties or not topic:
            self._publish_with(first, topic, number, properties, payload)
            return
        route = self._known.get(topic)
        if route is None:
            if is_content(topic):
                self._publish_content(first, topic, number, {}, payload)
                return
            route = self._routes.find(topic)
            if route is None:
                self._forbid(first, number, topic)
                return
        size = len(payload)
        qos = first >> 1 & 3
        header = self._headers.get(size << 1 | (qos > 0))
        if header is None:
            header = self._header(qos, size)
        self._terminal.published += 1
        if first & 7:
            self._publish(first, number, Message(route, header, payload, flags_for(qos, {})))
        else:
            message = Message(route, header, payload)
            session = self._terminal.session
            if session is not None and session.spurns_own:
                session.mine = message
            self._exchange.channel_post(self._producer, message, 0)

    def on_large_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, size: int
    ) -> None:
        if not self._terminal.opened:
            raise MqttError(Reason.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
        told = decoded(properties) if properties else {}
        topic = self._routes.named(topic, told)
        qos = first >> 1 & 3
        content = self._content_outlet() if is_content(topic) else None
        channel = self._producer if content is None else content.channel
        large = self._large = LargePublish(self._terminal, channel)
        if content is None:
            message = self._opening(first, topic, told, size)
        elif is_told_whole(told):
            why = f"a publication of {size} bytes is too long to be read"
            self._refuse(first, number, topic, Reason.QUOTA_EXCEEDED, why)
            return
        else:
            first &= ~1  # there is nothing to keep it under
            message = self._by_content(content, topic, told, qos, size)
        if message is None:
            self._forbid(first, number, topic)
            return
        if qos == 2 and self.answers.is_repeated(number):
            return
        self._terminal.published += 1
        message.more = True
        receipt = self.answers.receipt_of_large(first, number, message, channel)
        session = self._terminal.session
        if session is not None and session.spurns_own:
            session.mine = message
        large.begin(message, receipt)

    def on_payload(self, piece: memoryview, more: bool) -> None:
        assert self._large is not None, "a payload follows its packet's opening"
        large = self._large
        if not more:
            self._large = None
        large.pour(piece, more)

    def on_acknowledgement(self, kind: int, number: int, reason: int, properties: bytes) -> None:
        terminal = self._terminal
        session = terminal.session
        if not terminal.opened:
            raise MqttError(Reason.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
        if kind == PUBREL:
            self.answers.release(number)
            return
        letter = session.letters.get(number) if session is not None else None
        channel = terminal.outflow.channel
        if session is None or channel is None or letter is None:
            if kind == PUBREC:  # we know nothing of it: let the client forget it too
                unknown = Reason.PACKET_IDENTIFIER_NOT_FOUND
                terminal.send(acknowledgement(PUBREL, number, unknown, version=terminal.version))
            return
        if kind == PUBACK if letter.qos == 1 else kind == PUBCOMP and letter.released:
            session.channel_confirm(channel, letter)
            terminal.answered += 1
        elif kind == PUBREC and letter.qos == 2:
            if reason >= 0x80:
                session.channel_failure(channel, letter, False)
                terminal.answered += 1
                return
            if not letter.released:
                session.channel_confirm(channel, letter)
            terminal.send(acknowledgement(PUBREL, number, version=terminal.version))
        else:
            raise MqttError(
                Reason.PROTOCOL_ERROR, f"packet {number} is answered by a packet of the wrong kind"
            )

    def on_packet(self, kind: int, flags: int, body: bytes) -> None:
        self._terminal.on_packet(kind, body)

    # Messages.

    def _header(self, qos: int, size: int) -> bytes:
        if len(self._headers) >= HEADERS:
            self._headers.clear()
        header = self._headers[size << 1 | (qos > 0)] = plain_header(qos, size)
        return header

    def _fitting(self, header: bytes) -> bytes:
        if len(header) + 8 > self._terminal.host.kernel.settings.frame_max:
            raise MqttError(Reason.PACKET_TOO_LARGE, "more properties than fit in a frame of AMQP")
        return header

    def _opening(self, first: int, topic: bytes, told: Properties, size: int) -> Message | None:
        """A large publication without its payload; None when the client may not publish there."""
        route = self._routes.of(topic)
        if route is None:
            return None
        qos = first >> 1 & 3
        flags = flags_for(qos, told) | (RETAIN if first & 1 else 0)
        return Message(route, self._fitting(header_for(told, qos, size)), b"", flags)

    def _by_content(
        self, outlet: ContentOutlet, topic: bytes, told: Properties, qos: int, size: int
    ) -> Message | None:
        """The same of one that goes to whoever wants what it says."""
        message = outlet.message(topic, told, qos, size)
        if message is not None:
            self._fitting(message.header)
        return message

    def _content_outlet(self) -> ContentOutlet:
        if self._content is None:
            self._content = ContentOutlet(self._terminal)
        return self._content

    # Publishing.

    def _publish_with(
        self, first: int, topic: bytes, number: int, properties: bytes, payload: bytes
    ) -> None:
        """A publication with properties, or by alias."""
        told = decoded(properties) if properties else {}
        topic = self._routes.named(topic, told)
        if is_content(topic):
            self._publish_content(first, topic, number, told, payload)
            return
        route = self._routes.of(topic)
        if route is None:
            self._forbid(first, number, topic)
            return
        qos = first >> 1 & 3
        header = self._fitting(header_for(told, qos, len(payload)))
        self._terminal.published += 1
        self._publish(first, number, Message(route, header, payload, flags_for(qos, told)))

    def _publish_content(
        self, first: int, topic: bytes, number: int, told: Properties, payload: bytes
    ) -> None:
        """One that goes to whoever wants what it says; there is nothing to keep it under."""
        terminal = self._terminal
        if not terminal.opened:
            raise MqttError(Reason.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
        first &= ~1
        outlet = self._content_outlet()
        message = self._by_content(outlet, topic, told, first >> 1 & 3, len(payload))
        if message is None:
            self._forbid(first, number, topic)
            return
        message.body = payload
        terminal.published += 1
        try:
            self._publish(first, number, message, outlet.channel)
        except (AccessRefused, PreconditionFailed) as error:  # what a body in the language says
            _log.info("publication refused", connection=terminal.name, error=str(error))
            forbidden = isinstance(error, AccessRefused)
            reason = Reason.NOT_AUTHORIZED if forbidden else Reason.PAYLOAD_FORMAT_INVALID
            if posting := self.answers.posting:
                self.answers.settle(posting, reason, str(error))

    def _publish(
        self, first: int, number: int, message: Message, producer: Channel | None = None
    ) -> None:
        """One that is to be answered, kept, or both."""
        channel = producer or self._producer
        answers = self.answers
        qos = first >> 1 & 3
        if qos == 2 and answers.is_repeated(number):
            return
        receipt = answers.receipt(qos, number)
        if receipt and self._terminal.version == 5:
            message.flags |= MANDATORY
        if first & 1:
            message.flags |= RETAIN
            outcome = self._terminal.vhost.retained.keep(message)
            if receipt and outcome == LOGGED:
                receipt |= KEPT
        session = self._terminal.session
        if session is not None and session.spurns_own:
            session.mine = message
        answers.posting = receipt
        channel.driver.channel_post(channel, message, receipt)
        if answers.posting:
            answers.waits()
        if qos == 2:
            answers.remember(number)

    def _forbid(self, first: int, number: int, topic: bytes) -> None:
        why = f"not allowed to publish to {topic.decode('utf-8', 'replace')}"
        self._refuse(first, number, topic, Reason.NOT_AUTHORIZED, why)

    def _refuse(self, first: int, number: int, topic: bytes, reason: Reason, why: str) -> None:
        name = topic.decode("utf-8", "replace")
        _log.info("publication refused", connection=self._terminal.name, topic=name, reason=why)
        self.answers.refuse(first >> 1 & 3, number, reason, why)
