"""Scopes as permissions."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.auth.scopes import ScopePermissions, ScopeTopicPermissions, parse_scopes
from penstock.broker.permissions import PermissionKind, TopicPermissionKind
from penstock.broker.user import User
from penstock.broker.users import Users


def user_with(*scopes: str) -> User:
    granted, tags = parse_scopes(scopes)
    return User(
        "ada",
        tags=tags,
        permissions=ScopePermissions(granted),
        topic_permissions=ScopeTopicPermissions(granted),
        origin="oauth2",
    )


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(tmp_path / "users.json")


@pytest.mark.parametrize(
    ("scope", "vhost", "kind", "name", "allowed"),
    [
        ("read:*/*", "/", "read", "q", True),
        ("read:*/*/*", "any", "read", "q", True),
        ("read:*/*", "/", "write", "q", False),
        ("write:%2F/orders", "/", "write", "orders", True),
        ("write:%2F/orders", "other", "write", "orders", False),
        ("write:%2F/orders", "/", "write", "orders2", False),
        ("write:%2F/orders", "/", "write", "my-orders", False),
        ("write:*/orders-*", "/", "write", "orders-2", True),
        ("write:*/*-orders-*", "/", "write", "a-orders-b", True),
        ("write:*/a.b", "/", "write", "aXb", False),
        ("read:v*/%2A", "v1", "read", "x", True),  # as in RabbitMQ, a wildcard cannot be escaped
        ("configure:*/amq.default", "/", "configure", "", True),
        ("configure:*/*", "/", "configure", "line\nbreak", True),
        ("read:q", "/", "read", "q", False),
        ("read:a/b/c/d", "a", "read", "b", False),
        ("delete:*/*", "/", "read", "q", False),
        ("", "/", "read", "q", False),
    ],
)
def test_a_scope_grants_a_permission(
    users: Users, scope: str, vhost: str, kind: PermissionKind, name: str, allowed: bool
) -> None:
    assert users.is_allowed(user_with(scope), vhost, kind, name) is allowed


def test_scopes_add_up(users: Users) -> None:
    user = user_with("read:*/a", "read:*/b", "write:v/c")
    allowed = [
        (vhost, kind, name)
        for vhost in ("v", "w")
        for kind in ("read", "write")
        for name in "abc"
        if users.is_allowed(user, vhost, kind, name)
    ]
    assert allowed == [
        ("v", "read", "a"),
        ("v", "read", "b"),
        ("v", "write", "c"),
        ("w", "read", "a"),
        ("w", "read", "b"),
    ]


def test_a_virtual_host_is_accessible_by_any_permission(users: Users) -> None:
    user = user_with("write:team-*/x")
    assert users.can_access_vhost(user, "team-1")
    assert not users.can_access_vhost(user, "other")
    assert not users.can_access_vhost(user_with("tag:administrator"), "/")


@pytest.mark.parametrize(
    ("scopes", "kind", "key", "allowed"),
    [
        (["write:*/*"], "write", "any.key", True),
        (["write:*/*/*"], "write", "any.key", True),
        (["write:*/amq.topic/a.*"], "write", "a.b", True),
        (["write:*/amq.topic/a.*"], "write", "b.a.b", False),
        (["write:*/amq.topic/a.*"], "read", "a.b", False),
        (["write:*/amq.topic/a.*", "write:*/amq.topic/b"], "write", "b", True),
        (["write:*/amq.topic/a", "write:*/*"], "write", "b", True),
        (["read:*/amq.topic/{username}.*"], "read", "ada.x", True),
        (["read:*/amq.topic/{username}.*"], "read", "bob.x", False),
        (["read:*/amq.topic/{vhost}-{client_id}"], "read", "v-c.1", True),
        (["read:*/amq.topic/{vhost}-{client_id}"], "read", "v-cx1", False),
    ],
)
def test_a_routing_key_limits_topics(
    users: Users, scopes: list[str], kind: TopicPermissionKind, key: str, allowed: bool
) -> None:
    user = user_with(*scopes)
    assert users.is_topic_allowed(user, "v", "amq.topic", kind, key, "c.1") is allowed


def test_tags_are_scopes(users: Users) -> None:
    user = user_with("tag:administrator", "tag:impersonator", "tag:")
    assert user.tags == ("administrator", "impersonator")
    assert users.has_tag(user, "administrator")


def test_a_user_of_the_same_name_in_the_users_file_does_not_matter(users: Users) -> None:
    users.load()
    users.add("ada", "secret", ("administrator",))
    user = user_with("read:*/q")
    assert not users.has_tag(user, "administrator")
    assert users.is_allowed(user, "/", "read", "q")
    assert not users.is_allowed(user, "/", "write", "q")
