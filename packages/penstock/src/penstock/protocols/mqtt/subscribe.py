"""SUBSCRIBE and UNSUBSCRIBE: a filter becomes a binding of the session, or a share in a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.contract import TopicSubscription
from penstock.core.basic_properties import SHORTSTR_MAX
from penstock.core.errors import AccessRefused, PenstockError, Unsupported
from penstock.core.logs import get_logger
from penstock.protocols.mqtt.content_topics import subscribe_to_content, unsubscribe_from_content
from penstock.protocols.mqtt.history import HistoryRequest
from penstock.protocols.mqtt.sessions import SYS_EXCHANGE
from penstock.wire.mqtt import packets
from penstock.wire.mqtt.packets import (
    decode_subscribe,
    decode_unsubscribe,
    encode_suback,
    encode_unsuback,
)
from penstock.wire.mqtt.properties import MqttProperty
from penstock.wire.mqtt.reason_codes import ReasonCode
from penstock.wire.mqtt.topics import (
    CONTENT_TOPIC_PREFIX,
    split_shared_filter,
    topic_to_routing_key,
)

if TYPE_CHECKING:
    from penstock.protocols.mqtt.terminal import MqttTerminal

# Retain handling of a subscription.
_RETAIN_IF_NEW: Final = 1
_RETAIN_NEVER: Final = 2

_log = get_logger("penstock.mqtt")


def handle_subscribe(terminal: MqttTerminal, body: bytes) -> None:
    packet_id, properties, requests = decode_subscribe(body, terminal.version)
    identifier = properties.get(MqttProperty.SUBSCRIPTION_IDENTIFIER, [0])[0]
    reasons: list[int] = []
    wants_retained: list[TopicSubscription] = []
    errors: list[str] = []
    user_properties = properties.get(MqttProperty.USER_PROPERTY, ())
    history = HistoryRequest.of(terminal, dict(user_properties)) if user_properties else None
    for request in requests:
        reasons.append(
            _add_subscription(terminal, request, identifier, wants_retained, errors, history)
        )
    reason_properties = terminal.reason_properties("; ".join(errors)) if errors else None
    terminal.send(encode_suback(terminal.version, packet_id, reasons, reason_properties))
    for messages, subscription in history.found if history is not None else ():
        terminal.need_session().deliver_past(messages, subscription)
    for subscription in wants_retained:
        messages = terminal.vhost.retained.messages(subscription.pattern.encode())
        terminal.need_session().deliver_past(messages, subscription)


def _add_subscription(
    terminal: MqttTerminal,
    request: packets.SubscriptionRequest,
    identifier: int,
    wants_retained: list[TopicSubscription],
    errors: list[str],
    history: HistoryRequest | None,
) -> int:
    """Returns the granted QoS, or a reason code."""
    group, filter_ = split_shared_filter(request.filter)
    if filter_.startswith(CONTENT_TOPIC_PREFIX):
        return subscribe_to_content(terminal, request, identifier, errors)
    key = topic_to_routing_key(filter_.encode()).decode()
    if len(key.encode()) > SHORTSTR_MAX:
        return ReasonCode.TOPIC_FILTER_INVALID
    if not terminal.access.may_subscribe(key):
        _log.info("subscription refused", connection=terminal.name, filter=request.filter)
        return ReasonCode.NOT_AUTHORIZED
    subscription = TopicSubscription(
        key, request.qos, identifier, request.no_local, request.retain_as_published
    )
    try:
        if history is not None:
            if group is not None:
                raise Unsupported("a shared subscription has no history")
            messages = history.find(key)
            _bind_session(terminal, subscription)  # at once: what is published now follows them
            history.found.append((messages, subscription))
            return request.qos
        if group is not None:
            terminal.sessions.join(terminal, group, subscription)
            return request.qos
        is_new = _bind_session(terminal, subscription)
    except PenstockError as error:  # a deleted exchange, or a queue of that name
        _log.warning("subscription failed", connection=terminal.name, error=str(error))
        errors.append(str(error))
        if history is not None:
            if isinstance(error, AccessRefused):
                return ReasonCode.NOT_AUTHORIZED
            return ReasonCode.UNSPECIFIED_ERROR
        return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    if request.retain_handling < (_RETAIN_NEVER if is_new else _RETAIN_IF_NEW):
        wants_retained.append(subscription)
    return request.qos


def _bind_session(terminal: MqttTerminal, subscription: TopicSubscription) -> bool:
    """Replace the subscription with the same filter; returns whether there was none."""
    session = terminal.need_session()
    vhost = terminal.vhost
    exchange = _exchange(terminal, subscription.pattern)
    before = session.subscription(subscription.pattern)
    if before is not None and before != subscription:
        vhost.unbind(exchange, session, before.pattern, before.arguments)
    if before != subscription:
        vhost.bind(exchange, session, subscription.pattern, subscription.arguments)
    return before is None


def _exchange(terminal: MqttTerminal, key: str) -> str:
    if key.startswith("$SYS"):
        terminal.sessions.need_sys_exchange()
        return SYS_EXCHANGE
    return terminal.host.kernel.settings.mqtt.exchange


def handle_unsubscribe(terminal: MqttTerminal, body: bytes) -> None:
    packet_id, _, filters = decode_unsubscribe(body, terminal.version)
    reasons = [_remove_subscription(terminal, filter_) for filter_ in filters]
    terminal.send(encode_unsuback(terminal.version, packet_id, reasons))


def _remove_subscription(terminal: MqttTerminal, requested: str) -> int:
    session = terminal.session
    group, filter_ = split_shared_filter(requested)
    if session is not None and requested.startswith(CONTENT_TOPIC_PREFIX):
        return unsubscribe_from_content(terminal, session, requested)
    key = topic_to_routing_key(filter_.encode()).decode()
    if session is None:
        return ReasonCode.NO_SUBSCRIPTION_EXISTED
    if group is not None:
        left = terminal.sessions.leave_share(terminal.client_id, session, group, key)
        return ReasonCode.SUCCESS if left else ReasonCode.NO_SUBSCRIPTION_EXISTED
    before = session.subscription(key)
    if before is None:
        return ReasonCode.NO_SUBSCRIPTION_EXISTED
    terminal.vhost.unbind(_exchange(terminal, key), session, key, before.arguments)
    return ReasonCode.SUCCESS
