"""May they? Permissions, topic permissions, and that answers follow changes."""

from __future__ import annotations

import pytest

from penstock.broker.permissions import Permission, TopicPermission
from penstock.broker.users import Users
from penstock.core.errors import (
    PreconditionFailed,
)
from tests.broker.users.ground import EVERYTHING


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

    assert users.is_allowed(ana, "/", "write", name) is allowed
    assert not users.is_allowed(ana, "/", "configure", name)
    assert not users.is_allowed(ana, "other", "write", name)


def test_a_user_enters_the_virtual_hosts_they_have_permissions_in(users: Users) -> None:
    ana = users.add("ana", "secret")
    users.set_permissions("ana", "tests", Permission())

    assert users.can_access_vhost(ana, "tests")
    assert not users.can_access_vhost(ana, "/")


def test_cache_follow_the_permissions(users: Users) -> None:
    ana = users.add("ana", "secret")
    users.set_permissions("ana", "/", EVERYTHING)
    assert users.is_allowed(ana, "/", "read", "q")

    users.clear_permissions("ana", "/")

    assert not users.is_allowed(ana, "/", "read", "q")
    assert not users.can_access_vhost(ana, "/")


def test_a_deleted_user_may_nothing(users: Users) -> None:
    guest = users.get("guest")
    assert users.is_allowed(guest, "/", "read", "q")

    users.delete("guest")

    assert not users.is_allowed(guest, "/", "read", "q")
    assert not users.can_access_vhost(guest, "/")
    assert not users.is_topic_allowed(guest, "/", "amq.topic", "read", "a.b")


def test_names_chosen_by_a_peer_do_not_fill_memory(users: Users) -> None:
    guest = users.get("guest")

    for number in range(10_000):
        assert users.is_allowed(guest, "/", "read", f"q{number}")

    assert sum(len(answers) for answers in users._cache.values()) <= 4096


def test_without_a_topic_permission_any_key_will_do(users: Users) -> None:
    assert users.is_topic_allowed(users.get("guest"), "/", "amq.topic", "write", "a.b")


def test_a_topic_permission_narrows_the_keys_of_one_exchange(users: Users) -> None:
    guest = users.get("guest")
    users.set_topic_permissions(
        "guest", "/", "amq.topic", TopicPermission(write=r"^{username}\.", read="^{client_id}$")
    )

    assert users.is_topic_allowed(guest, "/", "amq.topic", "write", "guest.a")
    assert not users.is_topic_allowed(guest, "/", "amq.topic", "write", "other.a")
    assert users.is_topic_allowed(guest, "/", "amq.topic", "read", "c-1", client_id="c-1")
    assert users.is_topic_allowed(guest, "/", "another", "write", "other.a")


def test_keys_are_checked_where_there_are_topic_permissions(users: Users) -> None:
    guest = users.get("guest")
    users.set_topic_permissions("guest", "/", "amq.topic", TopicPermission(write="^a"))
    assert users.restricts_topics(guest, "/", "amq.topic")
    assert not users.restricts_topics(guest, "/", "another")
    assert not users.restricts_topics(guest, "other", "amq.topic")

    users.delete("guest")
    assert users.restricts_topics(guest, "/", "another")  # it may nothing any more


def test_a_variable_is_taken_literally(users: Users) -> None:
    guest = users.get("guest")
    users.set_topic_permissions("guest", "/", "amq.topic", TopicPermission(read="^{client_id}$"))

    assert not users.is_topic_allowed(guest, "/", "amq.topic", "read", "secrets", client_id=".*")


def test_cleared_topic_permissions_narrow_nothing(users: Users) -> None:
    guest = users.get("guest")
    for exchange in ("one", "two", "three"):
        users.set_topic_permissions("guest", "/", exchange, TopicPermission(read="^$"))

    users.clear_topic_permissions("guest", "/", "one")
    assert users.is_topic_allowed(guest, "/", "one", "read", "k")
    assert not users.is_topic_allowed(guest, "/", "two", "read", "k")

    users.clear_topic_permissions("guest", "/")
    assert users.is_topic_allowed(guest, "/", "two", "read", "k")


def test_what_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(PreconditionFailed, match=r"'\(' is not a regular expression"):
        Permission(read="(")
    with pytest.raises(PreconditionFailed, match="is not a regular expression"):
        TopicPermission(read="{client_id}[")


@pytest.mark.parametrize(
    ("pattern", "client_id", "allowed"),
    [
        ("", "anything", True),
        ("sensor-7", "sensor-7", True),
        ("sensor-7", "sensor-77", False),  # the whole id, anchored or not
        ("sensor-7", "my-sensor-7", False),
        ("sensor-7", "sensor-7\n", False),
        ("a|ab", "ab", True),
        ("sensor-[0-9]+", "", False),
        (".*", "", True),
    ],
)
def test_a_user_may_be_tied_to_client_ids(
    users: Users, pattern: str, client_id: str, allowed: bool
) -> None:
    ana = users.add("ana", "secret", client_ids=pattern)

    assert users.is_client_id_allowed(ana, client_id) is allowed


def test_an_answer_about_a_client_id_follows_the_user(users: Users) -> None:
    ana = users.add("ana", "secret", client_ids="sensor-7")
    version = users.version

    users.set_client_ids("ana", "sensor-8")
    assert not users.is_client_id_allowed(ana, "sensor-7")
    assert users.is_client_id_allowed(ana, "sensor-8")
    assert users.version > version  # what open connections go by

    users.set_client_ids("ana", "")
    assert users.is_client_id_allowed(ana, "sensor-9")

    users.delete("ana")
    assert not users.is_client_id_allowed(ana, "sensor-9")


def test_client_ids_are_a_regular_expression(users: Users) -> None:
    with pytest.raises(PreconditionFailed, match=r"'\(' is not a regular expression"):
        users.add("ana", "secret", client_ids="(")
    with pytest.raises(PreconditionFailed, match=r"'\[' is not a regular expression"):
        users.set_client_ids("guest", "[")

    assert {user.client_ids for user in users.all()} == {""}


def test_a_client_id_and_its_topics_can_be_tied_to_one_user(users: Users) -> None:
    seven = users.add("seven", "secret", client_ids="sensor-7")
    own = TopicPermission(write=r"^{client_id}\.", read=r"^commands\.{client_id}$")
    users.set_topic_permissions("seven", "/", "amq.topic", own)

    def may_write(key: str, client_id: str) -> bool:
        return users.is_client_id_allowed(seven, client_id) and users.is_topic_allowed(
            seven, "/", "amq.topic", "write", key, client_id
        )

    assert may_write("sensor-7.report", "sensor-7")
    assert not may_write("sensor-8.report", "sensor-7")
    assert not may_write("sensor-8.report", "sensor-8")
