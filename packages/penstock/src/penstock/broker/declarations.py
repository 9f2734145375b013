"""Checks of declare arguments, with RabbitMQ's rules and error texts."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from penstock.broker.contract import Exchange, Queue
from penstock.core.errors import PreconditionFailed
from penstock.core.field_table import encode_table

#: `x-max-age` of streams: a number and a unit, from seconds to years.
MAX_AGE_PATTERN = re.compile(r"(\d+)([YMDhms])")
AGE_SECONDS = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3_600, "m": 60, "s": 1}

OVERFLOW_POLICIES = ("drop-head", "reject-publish", "reject-publish-dlx")
QUEUE_TYPES = {"classic": "classic", "quorum": "classic", "stream": "stream"}
#: The queue type of MQTT sessions.
SESSION_QUEUE_TYPE = "mqtt"


def age_seconds(text: str) -> int:
    match = MAX_AGE_PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is not an age such as 7D, 12h or 30m")
    return int(match[1]) * AGE_SECONDS[match[2]]


def _is_count(value: Any) -> str | None:
    if type(value) is not int:
        return f"expected a whole number, got {value!r}"
    return None if value >= 0 else f"{value} is less than 0"


def _is_positive(value: Any) -> str | None:
    return _is_count(value) or (None if value > 0 else "0 is not allowed")


def _is_text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"expected a string, got {value!r}"


def _is_flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"expected a boolean, got {value!r}"


def _is_milliseconds(value: Any) -> str | None:
    return _is_count(value) or (None if value < 1 << 32 else f"{value} is too large")


def _is_priority(value: Any) -> str | None:
    return _is_count(value) or (None if 0 <= value <= 255 else f"{value} is more than 255")


def _is_overflow(value: Any) -> str | None:
    return (
        None
        if value in OVERFLOW_POLICIES
        else f"{value!r} is none of {', '.join(OVERFLOW_POLICIES)}"
    )


def _is_mode(value: Any) -> str | None:
    return None if value in ("default", "lazy") else f"unsupported queue mode {value!r}"


def _is_queue_type(value: Any) -> str | None:
    return None if value in QUEUE_TYPES else f"{value!r} is none of {', '.join(QUEUE_TYPES)}"


def _is_confirm_policy(value: Any) -> str | None:
    known = ("local", "in-sync")
    return None if value in known else f"{value!r} is none of {', '.join(known)}"


def _is_age(value: Any) -> str | None:
    try:
        age_seconds(value)
    except (TypeError, ValueError):
        return f"{value!r} is not an age such as 7D, 12h or 30m"
    return None


#: Arguments of all queue types.
COMMON_ARGUMENTS: dict[str, Callable[[Any], str | None]] = {
    "x-queue-type": _is_queue_type,
    "x-max-length-bytes": _is_count,
    "x-queue-leader-locator": _is_text,
    "x-confirm-policy": _is_confirm_policy,
    "x-initial-cluster-size": _is_positive,
}
QUEUE_ARGUMENTS = COMMON_ARGUMENTS | {
    "x-message-ttl": _is_milliseconds,
    "x-expires": _is_positive,
    "x-max-length": _is_count,
    "x-overflow": _is_overflow,
    "x-queue-mode": _is_mode,
    "x-dead-letter-exchange": _is_text,
    "x-dead-letter-routing-key": _is_text,
    "x-max-priority": _is_priority,
    "x-single-active-consumer": _is_flag,
    "x-consumer-timeout": _is_positive,
    "x-delivery-limit": _is_count,
}
#: Quorum queues are accepted as durable classic queues.
QUORUM_ARGUMENTS = {
    name: check for name, check in QUEUE_ARGUMENTS.items() if name != "x-max-priority"
} | {"x-max-in-memory-length": _is_count, "x-max-in-memory-bytes": _is_count}
STREAM_ARGUMENTS = COMMON_ARGUMENTS | {
    "x-max-age": _is_age,
    "x-stream-max-segment-size-bytes": _is_positive,
    "x-local-max-age": _is_age,
    "x-local-max-length-bytes": _is_count,
}
KNOWN_ARGUMENTS = QUEUE_ARGUMENTS | QUORUM_ARGUMENTS | STREAM_ARGUMENTS


def queue_type(
    vhost: str,
    name: str,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: dict[str, Any],
) -> str:
    """The queue type of a declaration; raises `PreconditionFailed` for an invalid one."""

    def refuse(what: str, why: str) -> NoReturn:
        raise PreconditionFailed(f"invalid {what} for queue '{name}' in vhost '{vhost}': {why}")

    asked = arguments.get("x-queue-type", "classic")
    if asked == SESSION_QUEUE_TYPE:
        return SESSION_QUEUE_TYPE
    known = {"stream": STREAM_ARGUMENTS, "quorum": QUORUM_ARGUMENTS}.get(asked, QUEUE_ARGUMENTS)
    for argument, value in arguments.items():
        check = known.get(argument)
        if check is not None:
            why = check(value)
            if why is not None:
                refuse(f"arg '{argument}'", why)
        elif argument in KNOWN_ARGUMENTS:
            refuse(f"arg '{argument}'", f"not supported by queues of type {asked}")
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        refuse("arg 'x-dead-letter-routing-key'", "there is no x-dead-letter-exchange")
    if asked != "classic":
        flags = {"non-durable": not durable, "exclusive-owner": exclusive}
        if asked == "stream":
            flags["auto-delete"] = auto_delete
        for flag, is_set in flags.items():
            if is_set:
                refuse(f"property '{flag}'", f"a queue of type {asked} is durable and shared")
    return QUEUE_TYPES[asked]


def check_queue_equivalence(
    vhost: str,
    queue: Queue,
    durable: bool,
    auto_delete: bool,
    arguments: dict[str, Any],
) -> None:
    where = f"queue '{queue.name}' in vhost '{vhost}'"
    _compare("durable", where, durable, queue.durable)
    _compare("auto_delete", where, auto_delete, queue.auto_delete)
    _compare_arguments(where, arguments, queue.arguments, set(KNOWN_ARGUMENTS))


def check_exchange_equivalence(
    vhost: str,
    exchange: Exchange,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: dict[str, Any],
) -> None:
    where = f"exchange '{exchange.name}' in vhost '{vhost}'"
    _compare("type", where, kind, exchange.type)
    _compare("durable", where, durable, exchange.durable)
    _compare("auto_delete", where, auto_delete, exchange.auto_delete)
    _compare("internal", where, internal, exchange.internal)
    _compare_arguments(
        where, arguments, exchange.arguments, {"alternate-exchange", "x-delayed-type"}
    )


def _shown(value: object) -> str:
    return f"'{str(value).lower() if isinstance(value, bool) else value}'"


def _compare(what: str, where: str, received: object, current: object) -> None:
    if received != current:
        raise PreconditionFailed(
            f"inequivalent arg '{what}' for {where}: "
            f"received {_shown(received)} but current is {_shown(current)}"
        )


def _compare_arguments(
    where: str, received: dict[str, Any], current: dict[str, Any], names: set[str]
) -> None:
    for name in sorted(names):
        new, old = received.get(name), current.get(name)
        if new == old or (name == "x-queue-type" and {new, old} == {None, "classic"}):
            continue
        shown = _shown if new is not None and old is not None else _typed
        raise PreconditionFailed(
            f"inequivalent arg '{name}' for {where}: "
            f"received {shown(new)} but current is {shown(old)}"
        )


def _typed(value: object) -> str:
    if value is None:
        return "none"
    kind = {int: "signedint", str: "longstr", bool: "bool"}.get(type(value), type(value).__name__)
    return f"the value {_shown(value)} of type '{kind}'"


def properties_key(key: str, arguments: dict[str, Any]) -> str:
    """The name of a binding in the management API, among those of one source and destination."""
    if not arguments:
        return key or "~"
    return f"{key}~{zlib.crc32(encode_table(arguments)):08x}"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The arguments of a queue, parsed."""

    ttl: int | None = None  #: of messages, in milliseconds
    expires: int | None = None  #: of the unused queue, in milliseconds
    max_length: int | None = None
    max_bytes: int | None = None
    reject: bool = (
        False  #: reject publishes beyond the limit instead of dropping the oldest message
    )
    dead_letter_rejects: bool = False  #: dead-letter rejected publishes
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    max_priority: int = 0
    single_active: bool = False
    delivery_limit: int | None = None
    consumer_timeout: int | None = None  #: of unacknowledged deliveries, in milliseconds

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> QueueLimits:
        overflow = arguments.get("x-overflow", "drop-head")
        return cls(
            ttl=arguments.get("x-message-ttl"),
            expires=arguments.get("x-expires"),
            max_length=arguments.get("x-max-length"),
            max_bytes=arguments.get("x-max-length-bytes"),
            reject=overflow != "drop-head",
            dead_letter_rejects=overflow == "reject-publish-dlx",
            dead_letter_exchange=arguments.get("x-dead-letter-exchange"),
            dead_letter_key=arguments.get("x-dead-letter-routing-key"),
            max_priority=arguments.get("x-max-priority", 0),
            single_active=arguments.get("x-single-active-consumer", False),
            delivery_limit=arguments.get("x-delivery-limit"),
            consumer_timeout=arguments.get("x-consumer-timeout"),
        )

    @property
    def bounded(self) -> bool:
        return self.max_length is not None or self.max_bytes is not None

    def exceeded(self, count: int, size: int) -> bool:
        return (self.max_length is not None and count > self.max_length) or (
            self.max_bytes is not None and size > self.max_bytes
        )
