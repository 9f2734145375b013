"""The content language over MQTT: topics and filters that begin with `$content/`.

The filter `$content/[class,eq,stock],[price,<,50]` is a subscription; a composite subscription
follows the prefix in the same way. A message to the topic `$content/stock` is a publication of that
class (to `$content`, of the class in its user properties). User properties are the attributes; a
value that reads as a number is one unless it is quoted. Errors name the position in the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import Channel, Message, TopicSubscription
from penstock.content import LanguageError, parse_composite, parse_subscription
from penstock.content.messages import INT_MAX, INT_MIN
from penstock.core.basic_properties import SHORTSTR_MAX, decode_header, encode_header, encode_route
from penstock.core.errors import AccessRefused, PenstockError, ResourceExhausted
from penstock.core.logs import get_logger
from penstock.protocols.mqtt.conversion import (
    PROPERTIES_HEADER,
    encode_content_header,
    message_flags,
)
from penstock.protocols.mqtt.sessions import MqttAccess
from penstock.wire.mqtt import packets
from penstock.wire.mqtt.properties import MqttProperties, MqttProperty
from penstock.wire.mqtt.reason_codes import ReasonCode
from penstock.wire.mqtt.topics import CONTENT_TOPIC_PREFIX, topic_to_routing_key

if TYPE_CHECKING:
    from penstock.broker.contract import SessionQueue
    from penstock.protocols.mqtt.terminal import MqttTerminal

_CONTENT_TOPIC: Final = CONTENT_TOPIC_PREFIX[:-1].encode()
_CLASS_PREFIX: Final = CONTENT_TOPIC_PREFIX.encode()

#: The content type of a payload that is itself in the language.
_PUBLICATION_CONTENT_TYPE: Final = "application/x-padres"
_INTEGER: Final = re.compile(r"0|[+-]?[1-9][0-9]*", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][+-]?[0-9]+)?", re.ASCII)

_log = get_logger("penstock.mqtt")


def is_content_topic(topic: bytes) -> bool:
    return topic.startswith(_CLASS_PREFIX) or topic == _CONTENT_TOPIC


def is_publication_text(properties: MqttProperties) -> bool:
    """Whether the payload is a publication in the content language."""
    return properties.get(MqttProperty.CONTENT_TYPE) == _PUBLICATION_CONTENT_TYPE


def parse_attribute_value(text: str) -> str | int | float:
    """A user property as a value of the content language."""
    if _INTEGER.fullmatch(text) and INT_MIN <= int(text) <= INT_MAX:
        return int(text)
    if _FLOAT.fullmatch(text) and abs(float(text)) != float("inf"):
        return float(text)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


class ContentPublisher:
    """Publishes to the content exchange for one client."""

    __slots__ = ("_access", "channel")

    def __init__(self, terminal: MqttTerminal) -> None:
        exchange = _exchange(terminal)
        self._access = _access(terminal, exchange)
        self.channel = Channel(terminal.writer, terminal.vhost.exchange(exchange))
        self.channel.check_topic = self._check_class
        self.channel.driver.channel_open(self.channel, {})

    def _check_class(self, class_name: str) -> None:
        if not self._access.may_publish(class_name):
            raise AccessRefused(f"not allowed to publish class {class_name}")

    def close(self) -> None:
        self.channel.driver.channel_close(self.channel)

    def message(
        self, topic: bytes, properties: MqttProperties, qos: int, size: int
    ) -> Message | None:
        """A message without its body of `size` bytes; None if the client may not publish the class.
        Of a publication as text the class is not known yet: the exchange checks it."""
        header = decode_header(encode_content_header(properties, qos, size))
        headers: dict[str, Any] = header.headers or {}
        headers.pop(PROPERTIES_HEADER, None)
        for name, value in properties.get(MqttProperty.USER_PROPERTY, ()):
            if name in headers and isinstance(headers[name], str):
                headers[name] = value if name == "class" else parse_attribute_value(value)
        named = topic.removeprefix(_CLASS_PREFIX).decode() if topic != _CONTENT_TOPIC else ""
        if named:
            headers.setdefault("class", named)
        header.headers = headers
        allowed = is_publication_text(properties) or self._access.may_publish(
            str(headers.get("class", named))
        )
        if not allowed:
            return None
        exchange: Any = self.channel.driver
        key = topic_to_routing_key(topic)[:SHORTSTR_MAX].decode("utf-8", "ignore")
        route = encode_route(exchange.name, key)
        return Message(route, encode_header(header, size), b"", message_flags(qos, properties))


def subscribe_to_content(
    terminal: MqttTerminal, request: packets.SubscriptionRequest, identifier: int, errors: list[str]
) -> int:
    if not request.filter.startswith(CONTENT_TOPIC_PREFIX):
        errors.append("subscriptions by content cannot be shared")
        return ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
    text = request.filter.removeprefix(CONTENT_TOPIC_PREFIX)
    try:
        exchange = _exchange(terminal)
        access = _access(terminal, exchange)
        if not all(map(access.may_subscribe, _classes(text))):
            _log.info("subscription refused", connection=terminal.name, filter=request.filter)
            return ReasonCode.NOT_AUTHORIZED
        session = terminal.need_session()
        wanted = TopicSubscription(
            request.filter,
            request.qos,
            identifier,
            request.no_local,
            request.retain_as_published,
            text,
        )
        before = session.subscription(request.filter)
        if before != wanted:
            if before is not None:
                terminal.vhost.unbind(exchange, session, before.pattern, before.arguments)
            terminal.vhost.bind(exchange, session, wanted.pattern, wanted.arguments)
    except LanguageError as error:
        errors.append(str(error))
        return ReasonCode.TOPIC_FILTER_INVALID
    except ResourceExhausted as error:
        errors.append(str(error))
        return ReasonCode.QUOTA_EXCEEDED
    except PenstockError as error:
        _log.warning("subscription failed", connection=terminal.name, error=str(error))
        errors.append(str(error))
        return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    return request.qos


def unsubscribe_from_content(terminal: MqttTerminal, session: SessionQueue, filter_: str) -> int:
    before = session.subscription(filter_)
    if before is None:
        return ReasonCode.NO_SUBSCRIPTION_EXISTED
    terminal.vhost.unbind(_exchange(terminal), session, filter_, before.arguments)
    return ReasonCode.SUCCESS


def _exchange(terminal: MqttTerminal) -> str:
    """The content exchange, which is declared with the router."""
    terminal.host.router(terminal.vhost.name)
    return terminal.host.kernel.settings.padres.exchange


def _access(terminal: MqttTerminal, exchange: str) -> MqttAccess:
    users, user = terminal.host.users, terminal.access.user
    return MqttAccess(users, user, terminal.vhost.name, exchange, terminal.client_id)


def _classes(text: str) -> list[str]:
    if text.lstrip().startswith("{"):
        return [part.class_name for part in parse_composite(text).parts()]
    return [parse_subscription(text).class_name]
