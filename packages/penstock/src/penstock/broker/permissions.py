"""What a user may do: RabbitMQ's permissions, as values that answer questions.

A permission is three regular expressions for one virtual host: which destinations the user may
configure, write to and read from. They match anywhere in a name unless anchored; an empty one
matches no name. A topic permission narrows, for one exchange, the routing keys a user may publish
with or bind by; where there is none, any key will do. Our own is the pattern of the client ids that
an MQTT connection of the user may have: it matches an id as a whole, and an empty one any id.

One difference from RabbitMQ: what a variable in a topic pattern stands for is taken literally, so
that a client cannot choose an identifier that is itself a pattern.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from penstock.core.errors import PreconditionFailed

PermissionKind = Literal["configure", "write", "read"]
TopicPermissionKind = Literal["write", "read"]

_VARIABLE: Final = re.compile(r"\{(username|vhost|client_id)\}")


@dataclass(frozen=True, slots=True)
class Permission:
    """What a user may do in one virtual host."""

    configure: str = ""
    write: str = ""
    read: str = ""

    def __post_init__(self) -> None:
        for pattern in (self.configure, self.write, self.read):
            validate_pattern(pattern)

    def allows(self, kind: PermissionKind, name: str) -> bool:
        pattern: str = getattr(self, kind)
        # The default exchange has no name; permissions know it by this one.
        return bool(pattern) and re.search(pattern, name or "amq.default") is not None


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Which routing keys a user may use with one exchange."""

    write: str = ""
    read: str = ""

    def __post_init__(self) -> None:
        for pattern in (self.write, self.read):
            validate_pattern(expand_pattern(pattern, {}))

    def allows(
        self, kind: TopicPermissionKind, routing_key: str, variables: dict[str, str]
    ) -> bool:
        pattern: str = getattr(self, kind)
        if not pattern:
            return not routing_key
        return re.search(expand_pattern(pattern, variables), routing_key) is not None


def expand_pattern(pattern: str, variables: dict[str, str]) -> str:
    """The pattern with `{username}`, `{vhost}` and `{client_id}` replaced."""
    return _VARIABLE.sub(lambda found: re.escape(variables.get(found[1], "")), pattern)


def allows_client_id(pattern: str, client_id: str) -> bool:
    return not pattern or re.fullmatch(pattern, client_id) is not None


def validate_pattern(pattern: str) -> str:
    """The same, if it is a regular expression."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PreconditionFailed(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern
