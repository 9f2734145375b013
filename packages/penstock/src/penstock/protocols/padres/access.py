"""Permissions of PADRES clients, and of brokers that link.

A class is a topic of the content exchange: advertising and publishing need the write permission,
subscribing the read permission. Classes that control brokers need the tag `administrator`. Results
are cached until users change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from penstock.broker.permissions import TopicPermissionKind
from penstock.broker.user import User
from penstock.broker.users import AccessControl as NamedAccess
from penstock.broker.users import Users
from penstock.content import (
    parse_advertisement,
    parse_composite,
    parse_publication,
    parse_subscription,
)
from penstock.core.errors import AccessRefused
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

#: A message that begins with its class as a bare name, as nearly all do.
_SIMPLE_CLASS: Final = re.compile(
    r"\s*\[\s*class\s*,\s*(?:eq\s*,\s*)?([A-Za-z_:/][A-Za-z0-9_:/-]*)\s*\]", re.ASCII
)
#: Publications of these classes control brokers.
_CONTROL_CLASSES: Final = frozenset(
    {"BROKER_CONTROL", "BROKER_MONITOR", "BROKER_ORDER", "GLOBAL_FD", "HEARTBEAT_MANAGER"}
)
_WRITE_KINDS: Final = frozenset({EnvelopeKind.ADVERTISE, EnvelopeKind.PUBLISH})
_REMOVE_KINDS: Final = frozenset(
    {EnvelopeKind.UNADVERTISE, EnvelopeKind.UNSUBSCRIBE, EnvelopeKind.UNCOMPOSITE}
)
#: The tag of users as whom other brokers connect. They need no permissions.
LINK_TAG: Final = "overlay"
#: Cached classes of one connection.
MAX_CACHED_CLASSES: Final = 1024


class PadresAccess:
    __slots__ = ("_allowed", "_exchange", "_named", "_users", "_version")

    def __init__(self, users: Users, user: User, vhost: str, exchange: str) -> None:
        self._users = users
        self._exchange = exchange
        self._named = NamedAccess(users, user, vhost)
        self._allowed: set[tuple[bool, str]] = set()
        self._version = users.version

    @property
    def user(self) -> User:
        return self._named.user

    def check(self, envelope: PadresEnvelope) -> None:
        """Raises `AccessRefused`. Withdrawing needs no permission."""
        kind = envelope.kind
        if kind in _REMOVE_KINDS:
            return
        if self._version != self._users.version:
            self._version = self._users.version
            self._allowed.clear()
        writes = kind in _WRITE_KINDS
        for name in _classes(envelope):
            if (writes, name) in self._allowed:
                continue
            verb: TopicPermissionKind = "write" if writes else "read"
            self._named.check(verb, "exchange", self._exchange)
            self._named.check_topic(verb, self._exchange, name)
            controls = writes and name in _CONTROL_CLASSES
            if controls and not self._users.has_tag(self.user, "administrator"):
                raise AccessRefused(f"user '{self.user.name}' may not control brokers by {name}")
            if len(self._allowed) >= MAX_CACHED_CLASSES:
                self._allowed.clear()
            self._allowed.add((writes, name))


class LinkAccess:
    """Whether a user may link a broker to this one."""

    __slots__ = ("_broker", "_user", "_users", "_version")

    def __init__(self, users: Users, user: User, broker: str) -> None:
        self._users = users
        self._user = user
        self._broker = broker
        self._version = -1

    def check(self) -> None:
        """Raises `AccessRefused`, also if the permission was revoked later."""
        users, name = self._users, self._user.name
        if self._version == users.version:
            return
        if not users.has_tag(self._user, LINK_TAG):
            raise AccessRefused(
                f"user '{name}' may not link brokers: it has no tag {LINK_TAG} "
                f"(penstock user tags {name} {LINK_TAG})"
            )
        if not users.is_client_id_allowed(self._user, self._broker):
            raise AccessRefused(f"user '{name}' may not be broker {self._broker!r}")
        self._version = users.version


def _classes(envelope: PadresEnvelope) -> Iterable[str]:
    if envelope.kind is EnvelopeKind.COMPOSITE:
        return [part.class_name for part in parse_composite(envelope.text).parts()]
    bare = _SIMPLE_CLASS.match(envelope.text)
    if bare is not None:
        return (bare[1],)
    if envelope.kind is EnvelopeKind.PUBLISH:
        return (parse_publication(envelope.text).class_name,)
    read = parse_advertisement if envelope.kind is EnvelopeKind.ADVERTISE else parse_subscription
    return (read(envelope.text).class_name,)
