"""What a client publishes: packets in, messages to the exchange.

The packet reader calls here. A publication without properties takes the short way; topics whose
route is known, and allowed, are remembered (`routes.py`). What the client is told of each is
`acknowledgements.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.buckets import Bucket
from penstock.broker.contract import LOGGED, MANDATORY, RETAIN, Channel, Fragment, Message
from penstock.core.basic_properties import SHORTSTR_MAX, encode_minimal_header, encode_shortstr
from penstock.core.errors import AccessRefused, PreconditionFailed
from penstock.core.logs import get_logger
from penstock.protocols.mqtt.acknowledgements import RETAINED_FLAG, PublishAcknowledgements
from penstock.protocols.mqtt.content_topics import (
    ContentPublisher,
    is_content_topic,
    is_publication_text,
)
from penstock.protocols.mqtt.conversion import (
    decode_publish_properties,
    encode_content_header,
    message_flags,
)
from penstock.wire.mqtt.fields import PUBACK, PUBCOMP, PUBREC, PUBREL
from penstock.wire.mqtt.packets import encode_acknowledgement
from penstock.wire.mqtt.properties import MqttProperties, MqttProperty
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode
from penstock.wire.mqtt.topics import topic_to_routing_key

if TYPE_CHECKING:
    from penstock.broker.contract import Exchange
    from penstock.protocols.mqtt.terminal import MqttTerminal


#: Sizes whose headers are remembered.
MAX_CACHED_HEADERS: Final = 4096

_log = get_logger("penstock.mqtt")


class PublishHandler:
    __slots__ = (
        "_content",
        "_exchange",
        "_headers",
        "_known",
        "_large",
        "_producer",
        "_routes",
        "_terminal",
        "acknowledgements",
    )

    def __init__(self, terminal: MqttTerminal) -> None:
        self._terminal = terminal
        self._headers = terminal.mqtt.headers
        self._exchange: Exchange
        self._producer: Channel
        self._routes = TopicRoutes(terminal)
        self._known = self._routes.known
        self._large: LargePublish | None = None
        self._content: ContentPublisher | None = None  # few clients publish by content
        self.acknowledgements = PublishAcknowledgements(terminal)

    def open(self, exchange: Exchange) -> None:
        """The client is let in."""
        self._exchange = exchange
        self._routes.exchange = exchange.name
        self._producer = Channel(self._terminal.writer, exchange)
        most = self._terminal.host.kernel.settings.mqtt.receive_maximum
        self.acknowledgements.open(self._producer, most)
        exchange.channel_open(self._producer, {})

    def close(self) -> None:
        if self._large is not None:
            self._large.abandon()
            self._large = None
        self.acknowledgements.close()
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
            if is_content_topic(topic):
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
            self._publish(first, number, Message(route, header, payload, message_flags(qos, {})))
        else:
            message = Message(route, header, payload)
            session = self._terminal.session
            if session is not None and session.no_local:
                session.own_message = message
            self._exchange.channel_post(self._producer, message, 0)

    def on_large_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, size: int
    ) -> None:
        if not self._terminal.opened:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
        told = decode_publish_properties(properties) if properties else {}
        topic = self._routes.named(topic, told)
        qos = first >> 1 & 3
        content = self._content_outlet() if is_content_topic(topic) else None
        channel = self._producer if content is None else content.channel
        large = self._large = LargePublish(self._terminal, channel)
        if content is None:
            message = self._opening(first, topic, told, size)
        elif is_publication_text(told):
            why = f"a publication of {size} bytes is too long to be read"
            self._refuse(first, number, topic, ReasonCode.QUOTA_EXCEEDED, why)
            return
        else:
            first &= ~1  # there is nothing to keep it under
            message = self._by_content(content, topic, told, qos, size)
        if message is None:
            self._forbid(first, number, topic)
            return
        if qos == 2 and self.acknowledgements.is_repeated(number):
            return
        self._terminal.published += 1
        message.more = True
        receipt = self.acknowledgements.receipt_of_large(first, number, message, channel)
        session = self._terminal.session
        if session is not None and session.no_local:
            session.own_message = message
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
            raise MqttError(ReasonCode.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
        if kind == PUBREL:
            self.acknowledgements.release(number)
            return
        entry = session.inflight.get(number) if session is not None else None
        channel = terminal.writer.channel
        if session is None or channel is None or entry is None:
            if kind == PUBREC:  # we know nothing of it: let the client forget it too
                unknown = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                terminal.send(
                    encode_acknowledgement(PUBREL, number, unknown, version=terminal.version)
                )
            return
        if kind == PUBACK if entry.qos == 1 else kind == PUBCOMP and entry.released:
            session.channel_confirm(channel, entry)
            terminal.answered += 1
        elif kind == PUBREC and entry.qos == 2:
            if reason >= 0x80:
                session.channel_failure(channel, entry, False)
                terminal.answered += 1
                return
            if not entry.released:
                session.channel_confirm(channel, entry)
            terminal.send(encode_acknowledgement(PUBREL, number, version=terminal.version))
        else:
            raise MqttError(
                ReasonCode.PROTOCOL_ERROR,
                f"packet {number} is answered by a packet of the wrong kind",
            )

    def on_packet(self, kind: int, flags: int, body: bytes) -> None:
        self._terminal.on_packet(kind, body)

    # Messages.

    def _header(self, qos: int, size: int) -> bytes:
        if len(self._headers) >= MAX_CACHED_HEADERS:
            self._headers.clear()
        header = self._headers[size << 1 | (qos > 0)] = encode_minimal_header(size, qos > 0)
        return header

    def _fitting(self, header: bytes) -> bytes:
        if len(header) + 8 > self._terminal.host.kernel.settings.frame_max:
            raise MqttError(
                ReasonCode.PACKET_TOO_LARGE, "more properties than fit in a frame of AMQP"
            )
        return header

    def _opening(self, first: int, topic: bytes, told: MqttProperties, size: int) -> Message | None:
        """A large publication without its payload; None when the client may not publish there."""
        route = self._routes.of(topic)
        if route is None:
            return None
        qos = first >> 1 & 3
        flags = message_flags(qos, told) | (RETAIN if first & 1 else 0)
        return Message(route, self._fitting(encode_content_header(told, qos, size)), b"", flags)

    def _by_content(
        self, outlet: ContentPublisher, topic: bytes, told: MqttProperties, qos: int, size: int
    ) -> Message | None:
        """The same of one that goes to whoever wants what it says."""
        message = outlet.message(topic, told, qos, size)
        if message is not None:
            self._fitting(message.header)
        return message

    def _content_outlet(self) -> ContentPublisher:
        if self._content is None:
            self._content = ContentPublisher(self._terminal)
        return self._content

    # Publishing.

    def _publish_with(
        self, first: int, topic: bytes, number: int, properties: bytes, payload: bytes
    ) -> None:
        """A publication with properties, or by alias."""
        told = decode_publish_properties(properties) if properties else {}
        topic = self._routes.named(topic, told)
        if is_content_topic(topic):
            self._publish_content(first, topic, number, told, payload)
            return
        route = self._routes.of(topic)
        if route is None:
            self._forbid(first, number, topic)
            return
        qos = first >> 1 & 3
        header = self._fitting(encode_content_header(told, qos, len(payload)))
        self._terminal.published += 1
        self._publish(first, number, Message(route, header, payload, message_flags(qos, told)))

    def _publish_content(
        self, first: int, topic: bytes, number: int, told: MqttProperties, payload: bytes
    ) -> None:
        """One that goes to whoever wants what it says; there is nothing to keep it under."""
        terminal = self._terminal
        if not terminal.opened:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
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
            reason = ReasonCode.NOT_AUTHORIZED if forbidden else ReasonCode.PAYLOAD_FORMAT_INVALID
            if posting := self.acknowledgements.posting:
                self.acknowledgements.settle(posting, reason, str(error))

    def _publish(
        self, first: int, number: int, message: Message, producer: Channel | None = None
    ) -> None:
        """One that is to be answered, kept, or both."""
        channel = producer or self._producer
        acknowledgements = self.acknowledgements
        qos = first >> 1 & 3
        if qos == 2 and acknowledgements.is_repeated(number):
            return
        receipt = acknowledgements.receipt(qos, number)
        if receipt and self._terminal.version == 5:
            message.flags |= MANDATORY
        if first & 1:
            message.flags |= RETAIN
            outcome = self._terminal.vhost.retained.keep(message)
            if receipt and outcome == LOGGED:
                receipt |= RETAINED_FLAG
        session = self._terminal.session
        if session is not None and session.no_local:
            session.own_message = message
        acknowledgements.posting = receipt
        channel.driver.channel_post(channel, message, receipt)
        if acknowledgements.posting:
            acknowledgements.waits()
        if qos == 2:
            acknowledgements.remember(number)

    def _forbid(self, first: int, number: int, topic: bytes) -> None:
        why = f"not allowed to publish to {topic.decode('utf-8', 'replace')}"
        self._refuse(first, number, topic, ReasonCode.NOT_AUTHORIZED, why)

    def _refuse(self, first: int, number: int, topic: bytes, reason: ReasonCode, why: str) -> None:
        name = topic.decode("utf-8", "replace")
        _log.info("publication refused", connection=self._terminal.name, topic=name, reason=why)
        self.acknowledgements.refuse(first >> 1 & 3, number, reason, why)


# Where the topics of one client lead: short names, permissions, and routes that are remembered.

#: Topics whose routes are remembered.
MAX_CACHED_ROUTES: Final = 1024


class TopicRoutes:
    __slots__ = ("_aliases", "_terminal", "exchange", "known")

    def __init__(self, terminal: MqttTerminal) -> None:
        self._terminal = terminal
        self._aliases: dict[int, bytes] = {}
        self.exchange = ""  #: they all begin with its name
        self.known: dict[bytes, bytes] = {}  #: by topic: allowed, and asked for before

    def named(self, topic: bytes, told: MqttProperties) -> bytes:
        """The topic, which may have a short name, or get one."""
        alias = told.get(MqttProperty.TOPIC_ALIAS)
        if alias is None:
            if not topic:
                raise MqttError(
                    ReasonCode.PROTOCOL_ERROR, "a publication without a topic or an alias"
                )
            return topic
        most = self._terminal.host.kernel.settings.mqtt.topic_alias_maximum
        if not 0 < alias <= most:
            raise MqttError(
                ReasonCode.TOPIC_ALIAS_INVALID, f"topic alias {alias}: 1 to {most} may be"
            )
        if topic:
            self._aliases[alias] = topic
            return topic
        known = self._aliases.get(alias)
        if known is None:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, f"topic alias {alias} names nothing")
        return known

    def of(self, topic: bytes) -> bytes | None:
        """Where a topic leads; None when this client may not publish there."""
        return self.known.get(topic) or self.find(topic)

    def find(self, topic: bytes) -> bytes | None:
        """`of` one that is not known."""
        terminal = self._terminal
        if not terminal.opened:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
        key = topic_to_routing_key(topic)
        if len(key) > SHORTSTR_MAX:
            raise MqttError(
                ReasonCode.TOPIC_NAME_INVALID, f"a topic of {len(key)} bytes: {SHORTSTR_MAX} may be"
            )
        if topic.startswith(b"$SYS") or not terminal.access.may_publish(key.decode()):
            return None
        if len(self.known) >= MAX_CACHED_ROUTES:
            self.known.clear()
        route = encode_shortstr(self.exchange) + bytes((len(key),)) + key
        self.known[topic] = route
        return route


# A large publication on its way in: it goes on as it comes, and nothing of it stays here.


class LargePublish:
    __slots__ = ("_begun", "_bucket", "_producer", "_receipt", "_terminal")

    def __init__(self, terminal: MqttTerminal, producer: Channel) -> None:
        self._terminal = terminal
        self._producer = producer
        self._receipt = 0
        self._begun = False  #: otherwise nobody wants it, and it is let pass
        self._bucket: Bucket | None = None

    def begin(self, message: Message, receipt: int) -> None:
        self._begun = True
        self._receipt = receipt
        self._terminal.flow_control.expect_bulk(True)
        self._producer.driver.channel_post(self._producer, message, 0)

    def pour(self, data: memoryview, more: bool) -> None:
        if not self._begun:
            return
        flow_control = self._terminal.flow_control
        while data:
            if self._bucket is None:
                self._bucket = flow_control.account.take()
            data = data[self._bucket.fill(data) :]
            last = not more and not data
            if last or self._bucket.full:
                bucket, self._bucket = self._bucket, None
                if last:
                    # What follows may not overtake it on its way to the disk.
                    flow_control.hold()
                    flow_control.expect_bulk(False)
                fragment = Fragment(bucket, bucket.content, more=not last)
                receipt = self._receipt if last else 0
                self._producer.driver.channel_post(self._producer, fragment, receipt)

    def abandon(self) -> None:
        """The connection has ended in the middle of it."""
        if self._bucket is not None:
            self._bucket.release()
            self._bucket = None
