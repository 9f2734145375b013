"""PUBLISH: publications of a client become messages to an exchange.

The packet reader calls `PublishHandler`, which a client has from its first publication on. A
publication without properties, to a topic whose route is cached, takes the fast path.
Acknowledgements to the publisher are `acknowledgements.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.contract import LOGGED, MANDATORY, RETAIN, Channel, Message
from penstock.broker.message_run import MessageRun
from penstock.core.basic_properties import SHORTSTR_MAX, encode_minimal_header, encode_shortstr
from penstock.core.errors import AccessRefused, PreconditionFailed, SchemaViolation
from penstock.core.logs import get_logger
from penstock.protocols.fragment_poster import FragmentPoster
from penstock.protocols.mqtt.acknowledgements import RETAINED_FLAG, PublishAcknowledgements
from penstock.protocols.mqtt.content_topics import (
    ContentPublisher,
    is_content_topic,
    is_publication_text,
)
from penstock.protocols.mqtt.conversion import (
    DELAYED_TOPIC_PREFIX,
    decode_publish_properties,
    encode_content_header,
    message_flags,
    split_delayed_topic,
)
from penstock.wire.mqtt.properties import MqttProperties, MqttProperty
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode
from penstock.wire.mqtt.topics import topic_to_routing_key

if TYPE_CHECKING:
    from penstock.broker.contract import Exchange
    from penstock.protocols.mqtt.terminal import MqttTerminal


#: Sizes whose content headers are cached.
MAX_CACHED_HEADERS: Final = 4096
#: Beyond so many, it pays to see whether all have the same size.
FEW_PAYLOADS: Final = 8

NOT_CONNECTED: Final = "packet before CONNECT was accepted"

_log = get_logger("penstock.mqtt")


class PublishHandler:
    __slots__ = (
        "_content",
        "_exchange",
        "_headers",
        "_known",
        "_large",
        "_large_receipt",
        "_producer",
        "_routes",
        "_terminal",
        "acknowledgements",
    )

    def __init__(self, terminal: MqttTerminal, exchange: Exchange) -> None:
        self._terminal = terminal
        self._headers = terminal.mqtt.headers
        self._exchange = exchange
        self._producer = Channel(terminal.writer, exchange)
        self._routes = TopicRoutes(terminal, exchange.name)
        self._known = self._routes.known
        self._large: FragmentPoster | None = None
        self._large_receipt = 0
        self._content: ContentPublisher | None = None  # created when it is needed
        limit = terminal.host.kernel.settings.mqtt.receive_maximum
        self.acknowledgements = PublishAcknowledgements(terminal, self._producer, limit)
        self._producer.confirm_run = self.acknowledgements.confirmed_run
        exchange.channel_open(self._producer, {})

    def close(self) -> None:
        if self._large is not None:
            self._large.abandon()
            self._large = None
        self.acknowledgements.close()
        self._producer.confirm_run = None  # it would keep this connection alive
        self._exchange.channel_close(self._producer)
        if self._content is not None:
            self._content.close()

    def forget_permissions(self) -> None:
        self._known.clear()

    def post_partial_bucket(self) -> None:
        if self._large is not None:
            self._large.post_partial()

    # Calls of the packet reader.

    def on_publish(
        self, first: int, topic: bytes, packet_id: int, properties: bytes, payload: bytes
    ) -> None:
        if properties or not topic:
            self._publish_with_properties(first, topic, packet_id, properties, payload)
            return
        route = self._known.get(topic)
        if route is None:
            if is_content_topic(topic):
                self._publish_content(first, topic, packet_id, {}, payload)
                return
            if topic.startswith(DELAYED_TOPIC_PREFIX):
                self._publish_with_properties(first, topic, packet_id, properties, payload)
                return
            route = self._routes.find(topic)
            if route is None:
                self._forbid(first, packet_id, topic)
                return
        size = len(payload)
        qos = first >> 1 & 3
        header = self._headers.get(size << 1 | (qos > 0))
        if header is None:
            header = self._header(qos, size)
        self._terminal.published += 1
        if first & 7:
            self._publish(first, packet_id, Message(route, header, payload, message_flags(qos, {})))
        else:
            message = Message(route, header, payload)
            session = self._terminal.session
            if session is not None and session.no_local:
                session.own_message = message
            try:
                self._exchange.channel_post(self._producer, message, 0)
            except SchemaViolation as error:  # at QoS 0 there is nothing to refuse it with
                _log.info("publication refused", connection=self._terminal.name, error=str(error))

    def on_publish_run(
        self, first: int, topic: bytes, numbers: list[int], payloads: list[bytes]
    ) -> None:
        route = self._known.get(topic)
        if route is None or not self._publish_run(first >> 1 & 3, route, numbers, payloads):
            for number, payload in zip(numbers, payloads, strict=True):
                self.on_publish(first, topic, number, b"", payload)

    def _publish_run(
        self, qos: int, route: bytes, numbers: list[int], payloads: list[bytes]
    ) -> bool:
        """Returns whether the messages could be posted together."""
        terminal, headers = self._terminal, self._headers
        acknowledgements = self.acknowledgements
        if terminal.session is not None and terminal.session.no_local:
            return False
        flags = message_flags(qos, {})
        if qos and terminal.version == 5:
            flags |= MANDATORY
        persistent = int(qos > 0)
        size = len(payloads[0])
        if len(payloads) > FEW_PAYLOADS and [*map(len, payloads)].count(size) == len(payloads):
            header = headers.get(size << 1 | persistent) or self._header(qos, size)
            run = MessageRun(route, flags, [header] * len(payloads), payloads)
        else:
            found = []
            for payload in payloads:
                size = len(payload)
                found.append(headers.get(size << 1 | persistent) or self._header(qos, size))
            run = MessageRun(route, flags, found, payloads)
        if not qos:
            posted = self._exchange.channel_post_run(self._producer, run)
        elif acknowledgements.begin_run(len(numbers)):
            posted = self._exchange.channel_post_run(self._producer, run, numbers)
            acknowledgements.end_run(len(numbers), posted)
        else:
            posted = False
        if posted:
            terminal.published += len(run)
        return posted

    def on_large_publish(
        self, first: int, topic: bytes, packet_id: int, properties: bytes, size: int
    ) -> None:
        if not self._terminal.opened:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, NOT_CONNECTED)
        decoded = decode_publish_properties(properties) if properties else {}
        topic = self._routes.resolve_alias(topic, decoded)
        if topic.startswith(DELAYED_TOPIC_PREFIX):
            topic, decoded = split_delayed_topic(topic, decoded)
        qos = first >> 1 & 3
        content = self._content_publisher() if is_content_topic(topic) else None
        channel = self._producer if content is None else content.channel
        if content is None:
            message = self._opening(first, topic, decoded, size)
        elif is_publication_text(decoded):
            reason = f"a publication in the content language of {size} bytes is too large"
            self._refuse(first, packet_id, topic, ReasonCode.QUOTA_EXCEEDED, reason)
            return
        else:
            first &= ~1  # publications by content are not retained
            message = self._content_message(content, topic, decoded, qos, size)
        if message is None:
            self._forbid(first, packet_id, topic)
            return
        if qos == 2 and self.acknowledgements.is_repeated(packet_id):
            return
        self._terminal.published += 1
        message.more = True
        acknowledgements = self.acknowledgements
        self._large_receipt = acknowledgements.receipt_of_large(first, packet_id, message, channel)
        session = self._terminal.session
        if session is not None and session.no_local:
            session.own_message = message
        self._large = FragmentPoster(self._terminal, channel)
        channel.driver.channel_post(channel, message, 0)

    def on_payload(self, piece: memoryview, more: bool) -> None:
        large = self._large
        if large is None:  # refused, or repeated
            return
        large.add(piece)
        if not more:
            self._large = None
            large.finish(self._large_receipt)

    # Messages.

    def _header(self, qos: int, size: int) -> bytes:
        if len(self._headers) >= MAX_CACHED_HEADERS:
            self._headers.clear()
        header = self._headers[size << 1 | (qos > 0)] = encode_minimal_header(size, qos > 0)
        return header

    def _check_size(self, header: bytes) -> bytes:
        if len(header) + 8 > self._terminal.host.kernel.settings.frame_max:
            raise MqttError(
                ReasonCode.PACKET_TOO_LARGE, "the properties do not fit into an AMQP frame"
            )
        return header

    def _opening(
        self, first: int, topic: bytes, properties: MqttProperties, size: int
    ) -> Message | None:
        """A large message without its body; None if the client may not publish to the topic."""
        route = self._routes.of(topic)
        if route is None:
            return None
        qos = first >> 1 & 3
        flags = message_flags(qos, properties) | (RETAIN if first & 1 else 0)
        header = self._check_size(encode_content_header(properties, qos, size))
        return Message(route, header, b"", flags)

    def _content_message(
        self,
        publisher: ContentPublisher,
        topic: bytes,
        properties: MqttProperties,
        qos: int,
        size: int,
    ) -> Message | None:
        """The same for the content exchange."""
        message = publisher.message(topic, properties, qos, size)
        if message is not None:
            self._check_size(message.header)
        return message

    def _content_publisher(self) -> ContentPublisher:
        if self._content is None:
            self._content = ContentPublisher(self._terminal)
        return self._content

    def _publish_with_properties(
        self, first: int, topic: bytes, packet_id: int, properties: bytes, payload: bytes
    ) -> None:
        decoded = decode_publish_properties(properties) if properties else {}
        topic = self._routes.resolve_alias(topic, decoded)
        if is_content_topic(topic):
            self._publish_content(first, topic, packet_id, decoded, payload)
            return
        if topic.startswith(DELAYED_TOPIC_PREFIX):
            topic, decoded = split_delayed_topic(topic, decoded)
        route = self._routes.of(topic)
        if route is None:
            self._forbid(first, packet_id, topic)
            return
        qos = first >> 1 & 3
        header = self._check_size(encode_content_header(decoded, qos, len(payload)))
        self._terminal.published += 1
        flags = message_flags(qos, decoded)
        self._publish(first, packet_id, Message(route, header, payload, flags))

    def _publish_content(
        self, first: int, topic: bytes, packet_id: int, properties: MqttProperties, payload: bytes
    ) -> None:
        """Publish to the content exchange; such publications are not retained."""
        terminal = self._terminal
        if not terminal.opened:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, NOT_CONNECTED)
        first &= ~1
        publisher = self._content_publisher()
        size = len(payload)
        message = self._content_message(publisher, topic, properties, first >> 1 & 3, size)
        if message is None:
            self._forbid(first, packet_id, topic)
            return
        message.body = payload
        terminal.published += 1
        try:
            self._publish(first, packet_id, message, publisher.channel)
        except (AccessRefused, PreconditionFailed) as error:  # of a body in the content language
            _log.info("publication refused", connection=terminal.name, error=str(error))
            forbidden = isinstance(error, AccessRefused)
            reason = ReasonCode.NOT_AUTHORIZED if forbidden else ReasonCode.PAYLOAD_FORMAT_INVALID
            if posting := self.acknowledgements.posting:
                self.acknowledgements.settle(posting, reason, str(error))

    def _publish(
        self, first: int, packet_id: int, message: Message, producer: Channel | None = None
    ) -> None:
        """Post a message that is acknowledged, retained, or both."""
        channel = producer or self._producer
        acknowledgements = self.acknowledgements
        qos = first >> 1 & 3
        if qos == 2 and acknowledgements.is_repeated(packet_id):
            return
        receipt = acknowledgements.receipt(qos, packet_id)
        if receipt and self._terminal.version == 5:
            message.flags |= MANDATORY
        if first & 1:
            message.flags |= RETAIN
            outcome = self._terminal.vhost.retained.retain(message)
            if receipt and outcome & LOGGED:
                receipt |= RETAINED_FLAG
        session = self._terminal.session
        if session is not None and session.no_local:
            session.own_message = message
        acknowledgements.posting = receipt
        try:
            channel.driver.channel_post(channel, message, receipt)
        except SchemaViolation as error:
            _log.info("publication refused", connection=self._terminal.name, error=str(error))
        if acknowledgements.posting:
            acknowledgements.defer_posted()
        if qos == 2:
            acknowledgements.add_received(packet_id)

    def _forbid(self, first: int, packet_id: int, topic: bytes) -> None:
        text = f"not allowed to publish to {topic.decode('utf-8', 'replace')}"
        self._refuse(first, packet_id, topic, ReasonCode.NOT_AUTHORIZED, text)

    def _refuse(
        self, first: int, packet_id: int, topic: bytes, code: ReasonCode, reason: str
    ) -> None:
        name = topic.decode("utf-8", "replace")
        _log.info("publication refused", connection=self._terminal.name, topic=name, reason=reason)
        self.acknowledgements.refuse(first >> 1 & 3, packet_id, code, reason)


#: Topics whose routes are cached.
MAX_CACHED_ROUTES: Final = 1024


class TopicRoutes:
    """Aliases, permissions and cached routes of the topics that one client publishes to."""

    __slots__ = ("_aliases", "_exchange", "_terminal", "known")

    def __init__(self, terminal: MqttTerminal, exchange: str) -> None:
        self._terminal = terminal
        self._aliases: dict[int, bytes] | None = None  # few clients use them
        self._exchange = exchange
        self.known: dict[bytes, bytes] = {}  #: routes by topic, of permitted topics

    def resolve_alias(self, topic: bytes, properties: MqttProperties) -> bytes:
        alias = properties.get(MqttProperty.TOPIC_ALIAS)
        if alias is None:
            if not topic:
                raise MqttError(ReasonCode.PROTOCOL_ERROR, "PUBLISH without a topic or an alias")
            return topic
        limit = self._terminal.host.kernel.settings.mqtt.topic_alias_maximum
        if not 0 < alias <= limit:
            raise MqttError(
                ReasonCode.TOPIC_ALIAS_INVALID, f"topic alias {alias} is not between 1 and {limit}"
            )
        if topic:
            if self._aliases is None:
                self._aliases = {}
            self._aliases[alias] = topic
            return topic
        known = self._aliases.get(alias) if self._aliases is not None else None
        if known is None:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, f"topic alias {alias} was not set")
        return known

    def of(self, topic: bytes) -> bytes | None:
        """The route; None if the client may not publish to the topic."""
        return self.known.get(topic) or self.find(topic)

    def find(self, topic: bytes) -> bytes | None:
        """The same for a topic that is not cached."""
        terminal = self._terminal
        if not terminal.opened:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, NOT_CONNECTED)
        key = topic_to_routing_key(topic)
        if len(key) > SHORTSTR_MAX:
            raise MqttError(
                ReasonCode.TOPIC_NAME_INVALID,
                f"the topic has {len(key)} bytes, at most {SHORTSTR_MAX} are supported",
            )
        if topic.startswith(b"$SYS") or not terminal.access.may_publish(key.decode()):
            return None
        if len(self.known) >= MAX_CACHED_ROUTES:
            self.known.clear()
        route = encode_shortstr(self._exchange) + bytes((len(key),)) + key
        self.known[topic] = route
        return route
