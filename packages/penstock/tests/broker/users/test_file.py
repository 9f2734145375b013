"""The users file: what is kept, shared with other processes, and survives."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker.permissions import Permission, TopicPermission
from penstock.broker.users import Users
from penstock.core.errors import (
    ConfigurationError,
    NotFound,
    PreconditionFailed,
)
from tests.broker.users.ground import Clock


def test_the_file_is_its_owners_alone(users: Users, path: Path) -> None:
    users.add("ana", "secret")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text()


async def test_everything_is_there_after_a_restart(
    users: Users, open_users: Callable[[], Users]
) -> None:
    users.add("ana", "secret", ("monitoring",), client_ids="sensor-7")
    users.set_permissions("ana", "/", Permission("a", "b", "c"))
    users.set_topic_permissions("ana", "/", "amq.topic", TopicPermission("d", "e"))
    users.set_tags("guest", ())

    again = open_users()

    assert again.all() == users.all()
    assert (await again.authenticate("ana", "secret", address="192.0.2.1")).tags == ("monitoring",)


async def test_a_change_by_another_process_is_taken_in_at_the_next_login(
    users: Users, open_users: Callable[[], Users], clock: Clock
) -> None:
    open_users().add("ana", "secret")
    clock.now += 1.0

    assert (await users.authenticate("ana", "secret", address="127.0.0.1")).name == "ana"


def test_the_file_is_looked_at_once_a_second(
    users: Users, open_users: Callable[[], Users], clock: Clock
) -> None:
    open_users().add("ana", "secret")

    clock.now += 0.5
    assert not users.refresh()
    clock.now += 0.5
    assert users.refresh()
    clock.now += 1.0
    assert not users.refresh()


def test_a_change_builds_on_what_another_process_changed(
    users: Users, open_users: Callable[[], Users]
) -> None:
    open_users().add("ana", "secret")

    users.add("ben", "secret")

    assert [user.name for user in users.all()] == ["ana", "anonymous", "ben", "guest"]


def test_changes_from_many_threads_all_hold(users: Users) -> None:
    threads = [
        threading.Thread(target=users.add, args=(f"user-{number}", "secret")) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(users.all()) == 10


def test_a_broken_file_leaves_the_users_as_they_were(
    users: Users, path: Path, clock: Clock
) -> None:
    path.write_text("{")
    clock.now += 1.0

    assert not users.refresh()
    assert [user.name for user in users.all()] == ["anonymous", "guest"]


def test_a_missing_file_leaves_the_users_as_they_were(
    users: Users, path: Path, clock: Clock
) -> None:
    path.unlink()
    clock.now += 1.0

    assert not users.refresh()
    assert [user.name for user in users.all()] == ["anonymous", "guest"]


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("{", "not a JSON document"),
        ("[]", "expected an object with the key 'users'"),
        ('{"users": {"ana": 1}}', "users.ana: expected an object"),
        ('{"users": {"ana": {"tags": 1}}}', "users.ana.tags: expected a list of strings"),
        ('{"users": {"ana": {"password_hash": "x"}}}', "users.ana.password_hash: "),
        (
            '{"users": {"ana": {"permissions": {"/": {"read": "("}}}}}',
            "users.ana.permissions./: '\\(' is not a regular expression",
        ),
        (
            '{"users": {"ana": {"permissions": {"/": {"read": 1}}}}}',
            "users.ana.permissions./.read: expected a string",
        ),
        (
            '{"users": {"ana": {"client_ids": "("}}}',
            "users.ana.client_ids: '\\(' is not a regular expression",
        ),
        ('{"users": {"ana": {"client_ids": 7}}}', "users.ana.client_ids: expected a string"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(path: Path, document: str, complaint: str) -> None:
    path.parent.mkdir()
    path.write_text(document)

    with pytest.raises(ConfigurationError, match=f"users.json: .*{complaint}"):
        Users(path).load()


def test_a_write_that_was_interrupted_does_no_harm(users: Users, path: Path) -> None:
    path.with_name("users.json.new").write_text("half a docu")

    users.add("ana", "secret")

    assert set(json.loads(path.read_text())["users"]) == {"anonymous", "guest", "ana"}


def test_names_must_be_free_to_add_and_known_to_change(users: Users) -> None:
    with pytest.raises(PreconditionFailed, match="'guest' already exists"):
        users.add("guest", "secret")
    with pytest.raises(PreconditionFailed, match="1 to 255 bytes"):
        users.add("", "secret")
    with pytest.raises(NotFound, match="no user 'ana'"):
        users.set_tags("ana", ())
    with pytest.raises(NotFound, match="no user 'ana'"):
        users.delete("ana")
    with pytest.raises(NotFound, match="no user 'ana'"):
        users.get("ana")


def without_version(path: Path) -> None:
    """As it was written before there was a user for clients without a name."""
    document = json.loads(path.read_text())
    del document["version"], document["users"]["anonymous"]
    path.write_text(json.dumps(document))


def test_a_file_from_before_gets_the_user_of_clients_without_a_name(
    users: Users, path: Path, open_users: Callable[[], Users]
) -> None:
    first = users.get("anonymous")
    users.add("ana", "secret")
    without_version(path)

    upgraded = open_users()

    assert upgraded.get("anonymous") == first
    assert [user.name for user in upgraded.all()] == ["ana", "anonymous", "guest"]
    assert json.loads(path.read_text())["version"] == 1


def test_it_gets_it_once(users: Users, path: Path, open_users: Callable[[], Users]) -> None:
    without_version(path)
    open_users().delete("anonymous")

    assert [user.name for user in open_users().all()] == ["guest"]


def test_the_permissions_it_has_already_stay(
    users: Users, path: Path, open_users: Callable[[], Users]
) -> None:
    users.set_permissions("anonymous", "/", Permission("", "", "a"))
    document = json.loads(path.read_text())
    del document["version"]
    path.write_text(json.dumps(document))

    assert open_users().get("anonymous").permissions == {"/": Permission("", "", "a")}


@pytest.mark.parametrize("version", [2, -1, "1", None, []])
def test_a_version_that_is_not_known_is_refused(
    users: Users, path: Path, open_users: Callable[[], Users], version: object
) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "version": version}))

    with pytest.raises(ConfigurationError, match=r"users\.json: version"):
        open_users()
