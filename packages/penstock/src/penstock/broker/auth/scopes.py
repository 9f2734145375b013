"""Scopes of tokens as permissions, in RabbitMQ's syntax:

    PERMISSION:VHOST/NAME[/ROUTING-KEY]     permission is configure, write or read
    tag:TAG                                 a tag of the user

The parts of a permission are patterns in which `*` matches any text; they are percent-encoded. A
routing key limits the keys of topic exchanges, and may contain `{username}`, `{vhost}`,
`{client_id}`. A scope that has another form grants nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from penstock.broker.permissions import (
    Permission,
    PermissionKind,
    TopicPermission,
    TopicPermissionKind,
)

_KINDS: Final[dict[str, PermissionKind]] = {
    "configure": "configure",
    "write": "write",
    "read": "read",
}
_TOPIC_KINDS: Final[tuple[TopicPermissionKind, ...]] = ("write", "read")
#: Matches no text: no scope grants the permission.
_NOTHING: Final = "(?!)"
ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class PermissionScope:
    kind: PermissionKind
    vhost: str  #: patterns with `*`
    name: str
    key: str = ANY


def parse_scopes(scopes: Iterable[str]) -> tuple[list[PermissionScope], tuple[str, ...]]:
    """The permissions and the tags that scopes without their prefix grant."""
    granted, tags = [], []
    for scope in scopes:
        kind, colon, rest = scope.partition(":")
        parts = [unquote(part) for part in rest.split("/")]
        if kind == "tag" and rest:
            tags.append(rest)
        elif colon and kind in _KINDS and len(parts) in (2, 3):
            granted.append(PermissionScope(_KINDS[kind], *parts))
    return granted, tuple(dict.fromkeys(tags))


def wildcard_regex(pattern: str) -> str:
    """A regular expression for the whole text."""
    return r"\A" + ".*".join(map(re.escape, pattern.split(ANY))) + r"\Z"


def _matches(pattern: str, text: str) -> bool:
    return re.search(wildcard_regex(pattern), text, re.DOTALL) is not None


class ScopePermissions(Mapping[str, Permission]):
    """Permissions by virtual host, as the users file has them; a scope may grant them in many."""

    def __init__(self, scopes: list[PermissionScope]) -> None:
        self._scopes = scopes
        self._permissions: dict[str, Permission | None] = {}

    def __getitem__(self, vhost: str) -> Permission:
        found = self._permissions.get(vhost)
        if vhost not in self._permissions:
            found = self._permissions[vhost] = self._permission(vhost)
        if found is None:
            raise KeyError(vhost)
        return found

    def _permission(self, vhost: str) -> Permission | None:
        scopes = [scope for scope in self._scopes if _matches(scope.vhost, vhost)]
        if not scopes:
            return None
        patterns: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        for scope in scopes:
            patterns[scope.kind].append(_dotall(wildcard_regex(scope.name)))
        return Permission(**{kind: "|".join(found) for kind, found in patterns.items()})

    def __iter__(self) -> Iterator[str]:
        """Names of virtual hosts without a wildcard: those with one have no end."""
        return iter({scope.vhost for scope in self._scopes if ANY not in scope.vhost})

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ScopeTopicPermissions(Mapping[str, Mapping[str, TopicPermission]]):
    """Topic permissions by virtual host and exchange."""

    def __init__(self, scopes: list[PermissionScope]) -> None:
        self._scopes = scopes
        self._vhosts: dict[str, _ExchangeTopics] = {}

    def __getitem__(self, vhost: str) -> Mapping[str, TopicPermission]:
        if vhost not in self._vhosts:
            scopes = [scope for scope in self._scopes if _matches(scope.vhost, vhost)]
            self._vhosts[vhost] = _ExchangeTopics(scopes)
        return self._vhosts[vhost]

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


#: Exchanges whose permission is kept; clients choose the names.
_MAX_EXCHANGES: Final = 1024


class _ExchangeTopics(Mapping[str, TopicPermission]):
    def __init__(self, scopes: list[PermissionScope]) -> None:
        self._scopes = scopes
        self._exchanges: dict[str, TopicPermission | None] = {}

    def __getitem__(self, exchange: str) -> TopicPermission:
        if exchange not in self._exchanges:
            if len(self._exchanges) >= _MAX_EXCHANGES:
                self._exchanges.clear()
            self._exchanges[exchange] = self._permission(exchange)
        found = self._exchanges[exchange]
        if found is None:
            raise KeyError(exchange)
        return found

    def _permission(self, exchange: str) -> TopicPermission | None:
        """None if every scope allows any routing key, so that keys need no check."""
        scopes = [scope for scope in self._scopes if _matches(scope.name, exchange)]
        if all(scope.key == ANY for scope in scopes):
            return None
        patterns: dict[str, str] = {}
        for kind in _TOPIC_KINDS:
            keys = [_topic_regex(scope.key) for scope in scopes if scope.kind == kind]
            patterns[kind] = "|".join(keys) or _NOTHING
        return TopicPermission(**patterns)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _dotall(regex: str) -> str:
    return f"(?s:{regex})"


def _topic_regex(pattern: str) -> str:
    """With its variables, which `TopicPermission` replaces, unescaped."""
    regex = wildcard_regex(pattern)
    return _dotall(re.sub(r"\\\{(username|vhost|client_id)\\\}", r"{\1}", regex))
