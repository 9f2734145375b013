"""Users: logins, permissions, the file, and RabbitMQ's definitions."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from argon2 import PasswordHasher

from penstock.broker.passwords import Passwords
from penstock.broker.permissions import Permission, TopicPermission
from penstock.broker.users import Users
from penstock.core.errors import (
    AuthenticationFailed,
    ConfigurationError,
    NotFound,
    PreconditionFailed,
)

EVERYTHING = Permission(".*", ".*", ".*")


class CountingHasher(PasswordHasher):
    """A hasher that is quick, for tests, counts how often it worked, and tells when it checked."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.worked = 0
        self.checked: Callable[[], None] = lambda: None

    def hash(self, password: str | bytes, **options: Any) -> str:
        self.worked += 1
        return super().hash(password, **options)

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:  # noqa: A002
        self.worked += 1
        super().verify(hash, password)
        self.checked()
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "users.json"


@pytest.fixture
def hasher() -> CountingHasher:
    return CountingHasher()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_users(path: Path, hasher: CountingHasher, clock: Clock) -> Callable[[], Users]:
    """A broker's users, or another process's, on the same file."""

    def opened() -> Users:
        users = Users(path, passwords=Passwords(hasher), clock=clock)
        users.load()
        return users

    return opened


@pytest.fixture
def users(open_users: Callable[[], Users]) -> Users:
    return open_users()


# Who is this?


async def test_the_first_start_makes_guest_an_administrator_of_the_default_vhost(
    users: Users,
) -> None:
    guest = await users.authenticate("guest", "guest", loopback=True)

    assert guest.tags == ("administrator",)
    assert guest.permissions == {"/": EVERYTHING}


async def test_guest_comes_from_loopback_only(users: Users) -> None:
    with pytest.raises(AuthenticationFailed, match="'guest' can only connect via localhost"):
        await users.authenticate("guest", "guest", loopback=False)


async def test_another_user_comes_from_anywhere(users: Users) -> None:
    users.add("ana", "secret")

    assert (await users.authenticate("ana", b"secret", loopback=False)).name == "ana"


@pytest.mark.parametrize(
    ("name", "password"),
    [("ana", "wrong"), ("ana", ""), ("nobody", "secret"), ("", ""), ("ana", "\ud800")],
)
async def test_a_wrong_name_or_password_is_refused(users: Users, name: str, password: str) -> None:
    users.add("ana", "secret")

    with pytest.raises(AuthenticationFailed):
        await users.authenticate(name, password, loopback=True)


async def test_a_right_password_is_checked_once(users: Users, hasher: CountingHasher) -> None:
    before = hasher.worked

    for _ in range(3):
        await users.authenticate("guest", "guest", loopback=True)

    assert hasher.worked == before + 1


async def test_many_at_once_with_the_same_password_wait_for_few_checks(
    users: Users, hasher: CountingHasher
) -> None:
    before = hasher.worked

    logins = [users.authenticate("guest", "guest", loopback=True) for _ in range(50)]
    await asyncio.gather(*logins)

    assert hasher.worked - before <= 2


async def test_a_refusal_takes_the_same_work_for_any_user(
    users: Users, hasher: CountingHasher
) -> None:
    users.restore({"users": [{"name": "rabbit", "password_hash": salted("right")}]})
    work = []

    for name in ("guest", "nobody", "rabbit"):
        before = hasher.worked
        with pytest.raises(AuthenticationFailed):
            await users.authenticate(name, "wrong", loopback=True)
        work.append(hasher.worked - before)

    assert work == [1, 1, 1]


async def test_the_check_runs_beside_the_loop(users: Users, hasher: CountingHasher) -> None:
    threads: list[threading.Thread] = []
    hasher.checked = lambda: threads.append(threading.current_thread())

    await users.authenticate("guest", "guest", loopback=True)

    assert threads
    assert threading.current_thread() not in threads


async def test_a_changed_password_is_the_only_one(users: Users) -> None:
    await users.authenticate("guest", "guest", loopback=True)

    users.set_password("guest", "new")

    with pytest.raises(AuthenticationFailed):
        await users.authenticate("guest", "guest", loopback=True)
    await users.authenticate("guest", "new", loopback=True)


async def test_a_password_changed_during_the_check_does_not_let_in(
    users: Users, hasher: CountingHasher
) -> None:
    hasher.checked = lambda: users.set_password("guest", "new")

    with pytest.raises(AuthenticationFailed, match="just been changed"):
        await users.authenticate("guest", "guest", loopback=True)


def test_an_empty_password_cannot_be_set(users: Users) -> None:
    with pytest.raises(PreconditionFailed, match="must not be empty"):
        users.add("ana", "")


# May they?


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        ("", "q", False),
        ("", "", False),
        (".*", "q", True),
        ("^ana-", "ana-1", True),
        ("^ana-", "not-ana-1", False),
        ("ana", "not-ana-1", True),  # anywhere in the name, unless anchored
        ("^amq\\.default$", "", True),  # the default exchange
        ("^(a|b)$", "b", True),
    ],
)
def test_a_permission_is_a_pattern(users: Users, pattern: str, name: str, allowed: bool) -> None:
    ana = users.add("ana", "secret")
    users.set_permissions("ana", "/", Permission(write=pattern))

    assert users.may(ana, "/", "write", name) is allowed
    assert not users.may(ana, "/", "configure", name)
    assert not users.may(ana, "other", "write", name)


def test_a_user_enters_the_virtual_hosts_they_have_permissions_in(users: Users) -> None:
    ana = users.add("ana", "secret")
    users.set_permissions("ana", "tests", Permission())

    assert users.may_enter(ana, "tests")
    assert not users.may_enter(ana, "/")


def test_answers_follow_the_permissions(users: Users) -> None:
    ana = users.add("ana", "secret")
    users.set_permissions("ana", "/", EVERYTHING)
    assert users.may(ana, "/", "read", "q")

    users.clear_permissions("ana", "/")

    assert not users.may(ana, "/", "read", "q")
    assert not users.may_enter(ana, "/")


def test_a_deleted_user_may_nothing(users: Users) -> None:
    guest = users.get("guest")
    assert users.may(guest, "/", "read", "q")

    users.delete("guest")

    assert not users.may(guest, "/", "read", "q")
    assert not users.may_enter(guest, "/")
    assert not users.may_topic(guest, "/", "amq.topic", "read", "a.b")


def test_names_chosen_by_a_peer_do_not_fill_memory(users: Users) -> None:
    guest = users.get("guest")

    for number in range(10_000):
        assert users.may(guest, "/", "read", f"q{number}")

    assert sum(len(answers) for answers in users._answers.values()) <= 4096


def test_without_a_topic_permission_any_key_will_do(users: Users) -> None:
    assert users.may_topic(users.get("guest"), "/", "amq.topic", "write", "a.b")


def test_a_topic_permission_narrows_the_keys_of_one_exchange(users: Users) -> None:
    guest = users.get("guest")
    users.set_topic_permissions(
        "guest", "/", "amq.topic", TopicPermission(write=r"^{username}\.", read="^{client_id}$")
    )

    assert users.may_topic(guest, "/", "amq.topic", "write", "guest.a")
    assert not users.may_topic(guest, "/", "amq.topic", "write", "other.a")
    assert users.may_topic(guest, "/", "amq.topic", "read", "c-1", client_id="c-1")
    assert users.may_topic(guest, "/", "another", "write", "other.a")


def test_a_variable_is_taken_literally(users: Users) -> None:
    guest = users.get("guest")
    users.set_topic_permissions("guest", "/", "amq.topic", TopicPermission(read="^{client_id}$"))

    assert not users.may_topic(guest, "/", "amq.topic", "read", "secrets", client_id=".*")


def test_cleared_topic_permissions_narrow_nothing(users: Users) -> None:
    guest = users.get("guest")
    for exchange in ("one", "two", "three"):
        users.set_topic_permissions("guest", "/", exchange, TopicPermission(read="^$"))

    users.clear_topic_permissions("guest", "/", "one")
    assert users.may_topic(guest, "/", "one", "read", "k")
    assert not users.may_topic(guest, "/", "two", "read", "k")

    users.clear_topic_permissions("guest", "/")
    assert users.may_topic(guest, "/", "two", "read", "k")


def test_what_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(PreconditionFailed, match=r"'\(' is not a regular expression"):
        Permission(read="(")
    with pytest.raises(PreconditionFailed, match="is not a regular expression"):
        TopicPermission(read="{client_id}[")


# The file.


def test_the_file_is_its_owners_alone(users: Users, path: Path) -> None:
    users.add("ana", "secret")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text()


async def test_everything_is_there_after_a_restart(
    users: Users, open_users: Callable[[], Users]
) -> None:
    users.add("ana", "secret", ("monitoring",))
    users.set_permissions("ana", "/", Permission("a", "b", "c"))
    users.set_topic_permissions("ana", "/", "amq.topic", TopicPermission("d", "e"))
    users.set_tags("guest", ())

    again = open_users()

    assert again.all() == users.all()
    assert (await again.authenticate("ana", "secret", loopback=False)).tags == ("monitoring",)


async def test_a_change_by_another_process_is_taken_in_at_the_next_login(
    users: Users, open_users: Callable[[], Users], clock: Clock
) -> None:
    open_users().add("ana", "secret")
    clock.now += 1.0

    assert (await users.authenticate("ana", "secret", loopback=True)).name == "ana"


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

    assert [user.name for user in users.all()] == ["ana", "ben", "guest"]


def test_changes_from_many_threads_all_hold(users: Users) -> None:
    threads = [
        threading.Thread(target=users.add, args=(f"user-{number}", "secret")) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(users.all()) == 9


def test_a_broken_file_leaves_the_users_as_they_were(
    users: Users, path: Path, clock: Clock
) -> None:
    path.write_text("{")
    clock.now += 1.0

    assert not users.refresh()
    assert [user.name for user in users.all()] == ["guest"]


def test_a_missing_file_leaves_the_users_as_they_were(
    users: Users, path: Path, clock: Clock
) -> None:
    path.unlink()
    clock.now += 1.0

    assert not users.refresh()
    assert [user.name for user in users.all()] == ["guest"]


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("{", "not a JSON document"),
        ("[]", "an object with the key 'users' belongs here"),
        ('{"users": {"ana": 1}}', "users.ana: an object belongs here"),
        ('{"users": {"ana": {"tags": 1}}}', "users.ana.tags: a list of strings"),
        ('{"users": {"ana": {"password_hash": "x"}}}', "users.ana.password_hash: "),
        (
            '{"users": {"ana": {"permissions": {"/": {"read": "("}}}}}',
            "users.ana.permissions./: '\\(' is not a regular expression",
        ),
        (
            '{"users": {"ana": {"permissions": {"/": {"read": 1}}}}}',
            "users.ana.permissions./.read: a string belongs here",
        ),
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

    assert set(json.loads(path.read_text())["users"]) == {"guest", "ana"}


def test_names_must_be_free_to_add_and_known_to_change(users: Users) -> None:
    with pytest.raises(PreconditionFailed, match="'guest' exists already"):
        users.add("guest", "secret")
    with pytest.raises(PreconditionFailed, match="1 to 255 bytes"):
        users.add("", "secret")
    with pytest.raises(NotFound, match="no user 'ana'"):
        users.set_tags("ana", ())
    with pytest.raises(NotFound, match="no user 'ana'"):
        users.delete("ana")
    with pytest.raises(NotFound, match="no user 'ana'"):
        users.get("ana")


# RabbitMQ's definitions.


def salted(password: str, algorithm: str = "sha256") -> str:
    """A password as RabbitMQ keeps it."""
    salt = b"\x90\x8d\xc6\x0a"
    digest = hashlib.new(algorithm, salt + password.encode()).digest()
    return base64.b64encode(salt + digest).decode()


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

    ana = await users.authenticate("ana", "secret", loopback=False)

    assert ana.tags == ("management", "monitoring")
    assert ana.permissions == {"/": Permission("^a", ".*", "")}
    assert ana.topic_permissions == {"/": {"amq.topic": TopicPermission("^a", ".*")}}
    with pytest.raises(AuthenticationFailed):
        await users.authenticate("ana", "wrong", loopback=False)


async def test_a_user_without_a_password_cannot_use_one(users: Users) -> None:
    users.restore({"users": [{"name": "certificate", "password_hash": "", "tags": []}]})

    with pytest.raises(AuthenticationFailed):
        await users.authenticate("certificate", "", loopback=True)


async def test_what_is_exported_can_be_imported(
    users: Users, tmp_path: Path, hasher: CountingHasher
) -> None:
    users.add("ana", "secret", ("monitoring",))
    users.set_permissions("ana", "/", Permission("a", "b", "c"))
    users.set_topic_permissions("ana", "/", "amq.topic", TopicPermission("d", "e"))
    exported = json.loads(json.dumps(users.export()))
    other = Users(tmp_path / "other.json", passwords=Passwords(hasher))
    other.load()

    other.restore(exported)

    assert other.all() == users.all()
    assert exported["users"][0]["hashing_algorithm"] == "argon2id"
    await other.authenticate("ana", "secret", loopback=True)


@pytest.mark.parametrize(
    ("definitions", "complaint"),
    [
        ({"users": 1}, "users: a list belongs here"),
        ({"users": [1]}, r"users\[0\]: an object belongs here"),
        ({"users": [{"name": ""}]}, r"users\[0\].name: a name belongs here"),
        ({"users": [{"name": "a", "password_hash": "!"}]}, r"users\[0\]: password_hash"),
        (
            {"users": [{"name": "a", "hashing_algorithm": "rabbit_password_hashing_md5"}]},
            r"users\[0\].hashing_algorithm: 'rabbit_password_hashing_md5' is none of",
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
