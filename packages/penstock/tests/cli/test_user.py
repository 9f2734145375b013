"""`penstock user` changes the users file, whether or not a broker runs on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.broker.permissions import Permission, TopicPermission
from penstock.broker.user import User
from penstock.broker.users import Users
from tests.cli.command import run


def users(data: Path) -> Users:
    found = Users(data / "users.json")
    found.load()
    return found


def user(data: Path, name: str) -> User:
    return users(data).get(name)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def ada(data: Path) -> Path:
    """A data directory with a user ada."""
    users(data).add("ada", "secret")
    return data


async def test_add_reads_the_password_from_the_input(data: Path) -> None:
    added = run("user", "add", "ada", "--password-stdin", "--data", data, stdin="se cret\n")
    assert (added.returncode, added.stdout, added.stderr) == (0, "", "")
    assert (await users(data).authenticate("ada", "se cret", address="127.0.0.1")).name == "ada"
    assert user(data, "ada").permissions == {}


def test_add_can_give_tags_and_everything(data: Path) -> None:
    flags = ("--password-stdin", "--tag", "monitoring", "--tag", "management", "--full")
    run("user", "add", "ada", *flags, "--vhost", "v", "--data", data, stdin="x\n")
    assert user(data, "ada").tags == ("monitoring", "management")
    assert user(data, "ada").permissions == {"v": Permission(".*", ".*", ".*")}


def test_add_can_tie_the_user_to_client_ids(data: Path) -> None:
    flags = ("--password-stdin", "--client-ids", "sensor-7")
    assert run("user", "add", "seven", *flags, "--data", data, stdin="x\n").returncode == 0
    assert user(data, "seven").client_ids == "sensor-7"


def test_a_user_with_client_ids_that_are_no_pattern_is_not_added(data: Path) -> None:
    flags = ("--password-stdin", "--client-ids", "(")
    added = run("user", "add", "seven", *flags, "--data", data, stdin="x\n")
    assert added.returncode == 5
    assert "'(' is not a regular expression" in added.stderr
    assert [each.name for each in users(data).all()] == ["anonymous", "guest"]


def test_no_flag_takes_a_password() -> None:
    for command in ("add", "password"):
        assert "--password-stdin" in run("user", command, "--help").stdout
        assert run("user", command, "ada", "--password", "x").returncode == 2


def test_a_user_there_is_already_is_not_added_again(ada: Path) -> None:
    added = run("user", "add", "ada", "--password-stdin", "--data", ada, stdin="other\n")
    assert added.returncode == 5
    assert "user 'ada' already exists" in added.stderr


def test_an_empty_password_is_refused(data: Path) -> None:
    added = run("user", "add", "ada", "--password-stdin", "--data", data, stdin="\n")
    assert added.returncode == 2
    assert "the password is empty" in added.stderr


async def test_password_changes_it(ada: Path) -> None:
    run("user", "password", "ada", "--password-stdin", "--data", ada, stdin="new\n")
    assert (await users(ada).authenticate("ada", "new", address="127.0.0.1")).name == "ada"


def test_delete(ada: Path) -> None:
    assert run("user", "delete", "ada", "--data", ada).returncode == 0
    assert [each.name for each in users(ada).all()] == ["anonymous", "guest"]


@pytest.mark.parametrize(
    "words",
    [
        ("delete", "bob"),
        ("password", "bob"),
        ("tags", "bob"),
        ("client-ids", "bob", "sensor-7"),
        ("permissions", "set", "bob", "", "", ""),
        ("permissions", "list", "bob"),
        ("topic-permissions", "clear", "bob"),
    ],
)
def test_a_user_there_is_not_is_exit_status_3(words: tuple[str, ...], ada: Path) -> None:
    asked = run("user", *words, "--data", ada)
    assert asked.returncode == 3
    assert "no user 'bob'" in asked.stderr


def test_tags_are_set_and_taken_away(ada: Path) -> None:
    run("user", "tags", "ada", "administrator", "--data", ada)
    assert user(ada, "ada").tags == ("administrator",)
    run("user", "tags", "ada", "--data", ada)
    assert user(ada, "ada").tags == ()


def test_client_ids_are_set_and_taken_away(ada: Path) -> None:
    run("user", "client-ids", "ada", "sensor-[0-9]+", "--data", ada)
    assert user(ada, "ada").client_ids == "sensor-[0-9]+"
    listed = run("user", "list", "--data", ada).stdout.splitlines()
    assert listed[1].split() == ["ada", "sensor-[0-9]+"]
    run("user", "client-ids", "ada", "--data", ada)
    assert user(ada, "ada").client_ids == ""


def test_list(ada: Path) -> None:
    shown = run("user", "list", "--data", ada)
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["user", "tags", "vhosts", "client-ids"],
        ["ada"],
        ["anonymous", "/"],
        ["guest", "administrator", "/"],
    ]
    told = json.loads(run("user", "list", "--json", "--data", ada).stdout)
    guest = {"name": "guest", "tags": ["administrator"], "vhosts": ["/"], "client_ids": ""}
    assert told[2] == guest


def test_permissions_are_set_listed_and_cleared(ada: Path) -> None:
    run("user", "permissions", "set", "ada", "", "^out", "^in", "--vhost", "v", "--data", ada)
    assert user(ada, "ada").permissions == {"v": Permission("", "^out", "^in")}
    listed = run("user", "permissions", "list", "ada", "--data", ada).stdout.splitlines()
    assert listed[1].split() == ["ada", "v", "^out", "^in"]
    run("user", "permissions", "clear", "ada", "--vhost", "v", "--data", ada)
    assert user(ada, "ada").permissions == {}


@pytest.mark.parametrize(
    "words",
    [
        ("permissions", "set", "ada", "(", "", ""),
        ("topic-permissions", "set", "ada", "amq.topic", "(", ""),
        ("client-ids", "ada", "("),
    ],
)
def test_what_is_no_regular_expression_is_refused(words: tuple[str, ...], ada: Path) -> None:
    asked = run("user", *words, "--data", ada)
    assert asked.returncode == 5
    assert "'(' is not a regular expression" in asked.stderr


def test_topic_permissions_are_set_listed_and_cleared(ada: Path) -> None:
    words = ("ada", "amq.topic", "^{username}", "^{client_id}$")
    run("user", "topic-permissions", "set", *words, "--data", ada)
    granted = {"/": {"amq.topic": TopicPermission("^{username}", "^{client_id}$")}}
    assert user(ada, "ada").topic_permissions == granted
    listed = run("user", "topic-permissions", "list", "--data", ada).stdout.splitlines()
    assert listed[1].split() == ["ada", "/", "amq.topic", "^{username}", "^{client_id}$"]
    run("user", "topic-permissions", "clear", "ada", "--data", ada)
    assert user(ada, "ada").topic_permissions == {}
