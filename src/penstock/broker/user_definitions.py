"""Users, permissions and topic permissions in the form of RabbitMQ's definitions.

What RabbitMQ exports can be imported here, password hashes included; what is exported here keeps
the form, though RabbitMQ cannot check an argon2 hash, and passes over the pattern of client ids,
a field of ours that only users who have one are written with. Import is all or nothing: the first
entry that makes no sense raises `ConfigurationError` naming it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.broker.passwords import checked_hash
from penstock.broker.user import (
    User,
    client_ids_from_json,
    permission_from_json,
    tags_from_json,
    topic_permission_from_json,
    user_to_json,
)
from penstock.core.errors import ConfigurationError, PreconditionFailed

_ALGORITHMS: Final = {
    "rabbit_password_hashing_sha256",
    "rabbit_password_hashing_sha512",
    "argon2id",
}


def users_to_definitions(users: Mapping[str, User]) -> dict[str, list[dict[str, Any]]]:
    definitions: dict[str, list[dict[str, Any]]] = {
        "users": [],
        "permissions": [],
        "topic_permissions": [],
    }
    for user in sorted(users.values(), key=lambda user: user.name):
        written = user_to_json(user)
        definitions["users"].append(
            {
                "name": user.name,
                "password_hash": user.password_hash,
                "hashing_algorithm": _algorithm(user.password_hash),
                "tags": written["tags"],
                "limits": {},
                **({"client_ids": user.client_ids} if user.client_ids else {}),
            }
        )
        for vhost, granted in written["permissions"].items():
            definitions["permissions"].append({"user": user.name, "vhost": vhost, **granted})
        for vhost, exchanges in written["topic_permissions"].items():
            for exchange, granted in exchanges.items():
                definitions["topic_permissions"].append(
                    {"user": user.name, "vhost": vhost, "exchange": exchange, **granted}
                )
    return definitions


def users_from_definitions(
    definitions: Mapping[str, Any],
    known: Mapping[str, User],
    hash_password: Callable[[str], str],
) -> dict[str, User]:
    """The users that the definitions add to those known, or change."""
    users: dict[str, User] = {}
    for place, entry in _entries(definitions, "users"):
        name = _name(entry, "name", place)
        old = known.get(name, User(name))
        users[name] = replace(
            old,
            password_hash=_password_hash(entry, place, hash_password),
            tags=tags_from_json(entry.get("tags", []), f"{place}.tags"),
            # A file of RabbitMQ's says nothing of it, and must not take a restriction away.
            client_ids=(
                client_ids_from_json(entry, place) if "client_ids" in entry else old.client_ids
            ),
        )
    for place, entry in _entries(definitions, "permissions"):
        user = _user(users, known, entry, place)
        granted = permission_from_json(entry, place)
        permissions = {**user.permissions, _name(entry, "vhost", place): granted}
        users[user.name] = replace(user, permissions=permissions)
    for place, entry in _entries(definitions, "topic_permissions"):
        user = _user(users, known, entry, place)
        vhost = _name(entry, "vhost", place)
        topic = topic_permission_from_json(entry, place)
        exchanges = {
            **user.topic_permissions.get(vhost, {}),
            _name(entry, "exchange", place): topic,
        }
        users[user.name] = replace(
            user, topic_permissions={**user.topic_permissions, vhost: exchanges}
        )
    return users


def _algorithm(password_hash: str) -> str:
    if password_hash.startswith("$argon2"):
        return "argon2id"
    # Base64 of a salt of four bytes and the digest: 48 letters for SHA-256.
    return f"rabbit_password_hashing_sha{256 if len(password_hash) <= 48 else 512}"


def _entries(definitions: Mapping[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    entries = definitions.get(key, [])
    if not isinstance(entries, list):
        raise ConfigurationError(f"{key}: a list belongs here")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise ConfigurationError(f"{key}[{number}]: an object belongs here")
    return [(f"{key}[{number}]", entry) for number, entry in enumerate(entries)]


def _name(entry: Mapping[str, Any], key: str, place: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{place}.{key}: a name belongs here")
    return value


def _user(
    users: Mapping[str, User], known: Mapping[str, User], entry: Mapping[str, Any], place: str
) -> User:
    name = _name(entry, "user", place)
    user = users.get(name) or known.get(name)
    if user is None:
        raise ConfigurationError(f"{place}.user: no user '{name}'")
    return user


def _password_hash(
    entry: Mapping[str, Any], place: str, hash_password: Callable[[str], str]
) -> str:
    if isinstance(password := entry.get("password"), str) and password:
        return hash_password(password)
    algorithm = entry.get("hashing_algorithm", "rabbit_password_hashing_sha256")
    if algorithm not in _ALGORITHMS:
        known = ", ".join(sorted(_ALGORITHMS))
        raise ConfigurationError(f"{place}.hashing_algorithm: {algorithm!r} is none of {known}")
    stored = entry.get("password_hash", "")
    if not isinstance(stored, str):
        raise ConfigurationError(f"{place}.password_hash: a string belongs here")
    try:
        return checked_hash(stored)
    except PreconditionFailed as error:
        raise ConfigurationError(f"{place}: {error}") from None
