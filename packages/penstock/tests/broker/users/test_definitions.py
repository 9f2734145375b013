"""RabbitMQ's definitions: users come and go with their passwords."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.permissions import Permission, TopicPermission
from penstock.broker.users import Users
from penstock.core.errors import (
    AuthenticationFailed,
    ConfigurationError,
)
from penstock.core.passwords import PasswordVerifier
from tests.broker.users.ground import CountingHasher, salted


def test_the_golden_hash_of_rabbitmqs_documentation() -> None:
    assert salted("test12") == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
async def test_users_of_rabbitmq_keep_their_passwords(users: Users, algorithm: str) -> None:
    users.restore(
        {
            "rabbit_version": "3.10.8",
            "users": [
                {
                    "name": "ana",
                    "password_hash": salted("secret", algorithm),
                    "hashing_algorithm": f"rabbit_password_hashing_{algorithm}",
                    "tags": "management,monitoring",
                    "limits": {},
                }
            ],
            "permissions": [
                {"user": "ana", "vhost": "/", "configure": "^a", "write": ".*", "read": ""}
            ],
            "topic_permissions": [
                {"user": "ana", "vhost": "/", "exchange": "amq.topic", "write": "^a", "read": ".*"}
            ],
        }
    )

    ana = await users.authenticate("ana", "secret", address="192.0.2.1")

    assert ana.tags == ("management", "monitoring")
    assert ana.permissions == {"/": Permission("^a", ".*", "")}
    assert ana.topic_permissions == {"/": {"amq.topic": TopicPermission("^a", ".*")}}
    with pytest.raises(AuthenticationFailed):
        await users.authenticate("ana", "wrong", address="192.0.2.1")


async def test_a_user_without_a_password_cannot_use_one(users: Users) -> None:
    users.restore({"users": [{"name": "certificate", "password_hash": "", "tags": []}]})

    with pytest.raises(AuthenticationFailed):
        await users.authenticate("certificate", "", address="127.0.0.1")


async def test_what_is_exported_can_be_imported(
    users: Users, tmp_path: Path, hasher: CountingHasher
) -> None:
    users.add("ana", "secret", ("monitoring",), client_ids="sensor-7")
    users.set_permissions("ana", "/", Permission("a", "b", "c"))
    users.set_topic_permissions("ana", "/", "amq.topic", TopicPermission("d", "e"))
    exported = json.loads(json.dumps(users.export()))
    other = Users(tmp_path / "other.json", passwords=PasswordVerifier(hasher))
    other.load()

    other.restore(exported)

    assert other.all() == users.all()
    assert exported["users"][0]["hashing_algorithm"] == "argon2id"
    await other.authenticate("ana", "secret", address="127.0.0.1")


def test_client_ids_are_written_only_where_there_are_any(users: Users) -> None:
    users.add("ana", "secret", client_ids="sensor-7")

    ana, _, guest = users.export()["users"]

    assert ana["client_ids"] == "sensor-7"
    assert "client_ids" not in guest  # RabbitMQ's own fields, and no other


def test_definitions_that_do_not_speak_of_client_ids_leave_them(users: Users) -> None:
    users.add("ana", "secret", client_ids="sensor-7")
    ana = {"name": "ana", "password_hash": salted("secret"), "tags": []}

    users.restore({"users": [ana]})
    assert users.get("ana").client_ids == "sensor-7"

    users.restore({"users": [{**ana, "client_ids": ""}]})
    assert users.get("ana").client_ids == ""


@pytest.mark.parametrize(
    ("definitions", "complaint"),
    [
        ({"users": 1}, "users: expected a list"),
        ({"users": [1]}, r"users\[0\]: expected an object"),
        ({"users": [{"name": ""}]}, r"users\[0\].name: expected a name"),
        ({"users": [{"name": "a", "password_hash": "!"}]}, r"users\[0\]: password_hash"),
        (
            {"users": [{"name": "a", "hashing_algorithm": "rabbit_password_hashing_md5"}]},
            r"users\[0\].hashing_algorithm: 'rabbit_password_hashing_md5' is none of",
        ),
        (
            {"users": [{"name": "a", "client_ids": "("}]},
            r"users\[0\].client_ids: '\(' is not a regular expression",
        ),
        (
            {"permissions": [{"user": "nobody", "vhost": "/"}]},
            r"permissions\[0\].user: no user 'nobody'",
        ),
    ],
)
def test_definitions_that_make_no_sense_change_nothing(
    users: Users, definitions: dict[str, Any], complaint: str
) -> None:
    before = users.all()

    with pytest.raises(ConfigurationError, match=complaint):
        users.restore({**definitions})

    assert users.all() == before
