"""What a declaration may ask for, and whether it asks for what already exists.

The rules and the wording are RabbitMQ's, which clients have learned to read.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any, NoReturn

from penstock.broker.destinations import Exchange, Queue
from penstock.core.errors import PreconditionFailed
from penstock.core.tables import encode_table

#: `x-max-age` of streams: a number and a unit, from seconds to years.
AGE = re.compile(r"(\d+)([YMDhms])")
AGE_SECONDS = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3_600, "m": 60, "s": 1}

OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
QUEUE_TYPES = {"classic": "classic", "quorum": "classic", "stream": "stream"}
#: A queue of this type is an MQTT client's session: it comes and goes with the client.
SESSION = "mqtt"


def age_seconds(text: str) -> int:
    match = AGE.fullmatch(text)
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
    return None if value in OVERFLOWS else f"{value!r} is none of {', '.join(OVERFLOWS)}"


def _is_mode(value: Any) -> str | None:
    return None if value in ("default", "lazy") else f"unsupported queue mode {value!r}"


def _is_queue_type(value: Any) -> str | None:
    return None if value in QUEUE_TYPES else f"{value!r} is none of {', '.join(QUEUE_TYPES)}"


def _is_age(value: Any) -> str | None:
    try:
        age_seconds(value)
    except (TypeError, ValueError):
        return f"{value!r} is not an age such as 7D, 12h or 30m"
    return None


#: Arguments both kinds of queues know.
SHARED: dict[str, Callable[[Any], str | None]] = {
    "x-queue-type": _is_queue_type,
    "x-max-length-bytes": _is_count,
    "x-queue-leader-locator": _is_text,
    "x-initial-cluster-size": _is_positive,
}
QUEUE_ARGUMENTS = SHARED | {
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
#: Quorum queues are accepted as durable classic ones, without what they lack elsewhere.
QUORUM_ARGUMENTS = {
    name: check for name, check in QUEUE_ARGUMENTS.items() if name != "x-max-priority"
} | {"x-max-in-memory-length": _is_count, "x-max-in-memory-bytes": _is_count}
STREAM_ARGUMENTS = SHARED | {
    "x-max-age": _is_age,
    "x-stream-max-segment-size-bytes": _is_positive,
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
    """The kind of queue a declaration asks for; raises when it asks for what cannot be."""

    def refuse(what: str, why: str) -> NoReturn:
        raise PreconditionFailed(f"invalid {what} for queue '{name}' in vhost '{vhost}': {why}")

    asked = arguments.get("x-queue-type", "classic")
    if asked == SESSION:
        return SESSION
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


def check_queue(
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


def check_exchange(
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
    """How management names a binding among those of one source and destination."""
    if not arguments:
        return key or "~"
    return f"{key}~{zlib.crc32(encode_table(arguments)):08x}"
