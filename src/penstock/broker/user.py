"""A user, and how one is written down.

`User` is a value: a change makes a new one. Its written form, one JSON object, is what the users
file holds. Reading is strict: a value of the wrong shape raises `ConfigurationError` saying where
it stands and what belongs there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.broker.passwords import checked_hash
from penstock.broker.permissions import Permission, TopicPermission, checked_pattern
from penstock.core.errors import ConfigurationError, PreconditionFailed

Made = TypeVar("Made")

#: By virtual host.
Permissions = Mapping[str, Permission]
#: By virtual host and exchange.
TopicPermissions = Mapping[str, Mapping[str, TopicPermission]]


@dataclass(frozen=True, slots=True)
class User:
    """Someone the broker knows. Without a password hash, no password lets them in."""

    name: str
    password_hash: str = field(default="", repr=False)
    tags: tuple[str, ...] = ()
    permissions: Permissions = field(default_factory=dict)
    topic_permissions: TopicPermissions = field(default_factory=dict)
    client_ids: str = ""  #: those an MQTT connection may have, as a pattern; empty is any


def user_to_json(user: User) -> dict[str, Any]:
    written: dict[str, Any] = {
        "password_hash": user.password_hash,
        "tags": list(user.tags),
        "permissions": {
            vhost: {"configure": granted.configure, "write": granted.write, "read": granted.read}
            for vhost, granted in user.permissions.items()
        },
        "topic_permissions": {
            vhost: {
                exchange: {"write": granted.write, "read": granted.read}
                for exchange, granted in exchanges.items()
            }
            for vhost, exchanges in user.topic_permissions.items()
        },
    }
    if user.client_ids:
        written["client_ids"] = user.client_ids
    return written


def user_from_json(name: str, value: Any) -> User:
    place = f"users.{name}"
    entry = _object(value, place)
    return User(
        name,
        _accepted(place + ".password_hash", checked_hash, _text(entry, "password_hash", place)),
        tags_from_json(entry.get("tags", []), place + ".tags"),
        {
            vhost: permission_from_json(granted, f"{place}.permissions.{vhost}")
            for vhost, granted in _member(entry, "permissions", place).items()
        },
        {
            vhost: {
                exchange: topic_permission_from_json(
                    granted, f"{place}.topic_permissions.{vhost}.{exchange}"
                )
                for exchange, granted in _object(
                    exchanges, f"{place}.topic_permissions.{vhost}"
                ).items()
            }
            for vhost, exchanges in _member(entry, "topic_permissions", place).items()
        },
        client_ids_from_json(entry, place),
    )


def permission_from_json(value: Any, place: str) -> Permission:
    entry = _object(value, place)
    patterns = [_text(entry, kind, place) for kind in ("configure", "write", "read")]
    return _accepted(place, Permission, *patterns)


def topic_permission_from_json(value: Any, place: str) -> TopicPermission:
    entry = _object(value, place)
    patterns = [_text(entry, kind, place) for kind in ("write", "read")]
    return _accepted(place, TopicPermission, *patterns)


def client_ids_from_json(entry: dict[str, Any], place: str) -> str:
    return _accepted(place + ".client_ids", checked_pattern, _text(entry, "client_ids", place))


def tags_from_json(value: Any, place: str) -> tuple[str, ...]:
    """Tags as a list or, as older RabbitMQ wrote them, in one string with commas."""
    if isinstance(value, str):
        value = [tag.strip() for tag in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise ConfigurationError(f"{place}: a list of strings belongs here")
    return tuple(tag for tag in value if tag)


def _accepted(place: str, make: Callable[..., Made], *values: str) -> Made:
    """What `make` makes of the values, or its objection with the place where they stand."""
    try:
        return make(*values)
    except PreconditionFailed as error:
        raise ConfigurationError(f"{place}: {error}") from None


def _member(entry: dict[str, Any], key: str, place: str) -> dict[str, Any]:
    return _object(entry.get(key, {}), f"{place}.{key}")


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{place}: an object belongs here")
    return value


def _text(entry: dict[str, Any], key: str, place: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise ConfigurationError(f"{place}.{key}: a string belongs here")
    return value
