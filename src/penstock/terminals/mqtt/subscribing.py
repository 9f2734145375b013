"""SUBSCRIBE and UNSUBSCRIBE: filters become bindings of the session, or shares in a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.sessions import Subscription
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.terminals.mqtt import packets
from penstock.terminals.mqtt.content import subscribe_to_content, unsubscribe_from_content
from penstock.terminals.mqtt.encode import suback, unsuback
from penstock.terminals.mqtt.packets import decode_subscribe, decode_unsubscribe
from penstock.terminals.mqtt.properties import Property
from penstock.terminals.mqtt.reasons import Reason
from penstock.terminals.mqtt.sessions import SYS_EXCHANGE
from penstock.terminals.mqtt.topics import CONTENT, split_share, to_key
from penstock.terminals.mqtt.translation import SHORT

if TYPE_CHECKING:
    from penstock.terminals.mqtt.terminal import MqttTerminal

# When a subscription brings what was retained.
_IF_NEW: Final = 1
_NEVER: Final = 2

_log = get_logger("penstock.mqtt")


def subscribe(terminal: MqttTerminal, body: bytes) -> None:
    number, properties, asked = decode_subscribe(body, terminal.version)
    identifier = properties.get(Property.SUBSCRIPTION_IDENTIFIER, [0])[0]
    reasons: list[int] = []
    recalls: list[Subscription] = []
    mistakes: list[str] = []
    for request in asked:
        reasons.append(_subscribe(terminal, request, identifier, recalls, mistakes))
    told = terminal.explained("; ".join(mistakes)) if mistakes else None
    terminal.send(suback(terminal.version, number, reasons, told))
    for subscription in recalls:
        keys = terminal.vhost.retained.matching(subscription.pattern.encode())
        terminal.need_session().recall(keys, subscription)


def _subscribe(
    terminal: MqttTerminal,
    request: packets.Subscription,
    identifier: int,
    recalls: list[Subscription],
    mistakes: list[str],
) -> int:
    """Grant one filter what it asks for, or say why not."""
    group, filter_ = split_share(request.filter)
    if filter_.startswith(CONTENT):
        return subscribe_to_content(terminal, request, identifier, mistakes)
    key = to_key(filter_.encode()).decode()
    if len(key.encode()) > SHORT:
        return Reason.TOPIC_FILTER_INVALID
    if not terminal.access.may_subscribe(key):
        _log.info("subscription refused", connection=terminal.name, filter=request.filter)
        return Reason.NOT_AUTHORIZED
    subscription = Subscription(
        key, request.qos, identifier, request.no_local, request.retain_as_published
    )
    try:
        if group is not None:
            terminal.sessions.join(terminal, group, subscription)
            return request.qos
        is_new = _bind(terminal, subscription)
    except PenstockError as error:  # the exchange is gone, or a queue is in the way
        _log.warning("subscription failed", connection=terminal.name, error=str(error))
        return Reason.IMPLEMENTATION_SPECIFIC_ERROR
    if request.retain_handling < (_NEVER if is_new else _IF_NEW):
        recalls.append(subscription)
    return request.qos


def _bind(terminal: MqttTerminal, subscription: Subscription) -> bool:
    """Bind the session, in place of what the same filter asked for before; whether it is new."""
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


def unsubscribe(terminal: MqttTerminal, body: bytes) -> None:
    number, _, filters = decode_unsubscribe(body, terminal.version)
    reasons = [_unsubscribe(terminal, filter_) for filter_ in filters]
    terminal.send(unsuback(terminal.version, number, reasons))


def _unsubscribe(terminal: MqttTerminal, asked: str) -> int:
    session = terminal.session
    group, filter_ = split_share(asked)
    if session is not None and asked.startswith(CONTENT):
        return unsubscribe_from_content(terminal, session, asked)
    key = to_key(filter_.encode()).decode()
    if session is None:
        return Reason.NO_SUBSCRIPTION_EXISTED
    if group is not None:
        left = terminal.sessions.leave_share(terminal.client_id, session, group, key)
        return Reason.SUCCESS if left else Reason.NO_SUBSCRIPTION_EXISTED
    before = session.subscription(key)
    if before is None:
        return Reason.NO_SUBSCRIPTION_EXISTED
    terminal.vhost.unbind(_exchange(terminal, key), session, key, before.arguments)
    return Reason.SUCCESS
