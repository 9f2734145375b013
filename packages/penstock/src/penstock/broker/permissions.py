"""RabbitMQ's permissions.

A permission has three regular expressions per virtual host: destinations that the user may
configure, write to and read from. They match anywhere in a name unless anchored; an empty one
matches nothing. A topic permission restricts the routing keys of one exchange; without one, any key
is allowed. Our own addition is the pattern of MQTT client ids: it must match the whole id, and an
empty one matches any.

Unlike RabbitMQ, variables in topic patterns are replaced by escaped text, so that a client cannot
choose an id that is a pattern.
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
    configure: str = ""
    write: str = ""
    read: str = ""

    def __post_init__(self) -> None:
        for pattern in (self.configure, self.write, self.read):
            validate_pattern(pattern)

    def allows(self, kind: PermissionKind, name: str) -> bool:
        pattern: str = getattr(self, kind)
        # The default exchange has this name in permissions.
        return bool(pattern) and re.search(pattern, name or "amq.default") is not None


@dataclass(frozen=True, slots=True)
class TopicPermission:
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
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PreconditionFailed(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern
