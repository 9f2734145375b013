"""`penstock hives admin create`: the first administrator, without SQL."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from penstock.core.errors import PenstockError
from penstock_hives.commands.hives import app
from penstock_store import Database

LOGIN = "Root@Example.org"


def create(database: Database, *options: str, password: str = "correct horse battery") -> str:
    done = CliRunner().invoke(
        app,
        ["admin", "create", LOGIN, "--password-stdin", "--database", database.url, *options],
        input=f"{password}\n",
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def roles(database: Database) -> list[tuple[str, str]]:
    return [
        (row["login"], row["role"])
        for row in database.rows(
            "SELECT c.login, u.role FROM app_user u "
            "JOIN credential c ON c.uid = u.firebase_uid ORDER BY c.login"
        )
    ]


def test_an_account_is_created_and_its_role_can_be_changed(database: Database) -> None:
    assert "was created as admin" in create(database)
    assert roles(database) == [("root@example.org", "admin")]
    assert "is now operator" in create(database, "--role", "operator", password="")
    assert roles(database) == [("root@example.org", "operator")]
    assert "is now admin" in create(database, "--uid", "of-firebase", password="")
    found = database.rows("SELECT role FROM app_user WHERE firebase_uid = 'of-firebase'")
    assert found == [{"role": "admin"}]
    with pytest.raises(PenstockError, match="password"):
        CliRunner().invoke(
            app,
            ["admin", "create", "a@b.example", "--password-stdin", "--database", database.url],
            input="short\n",
            catch_exceptions=False,
        )
    assert len(roles(database)) == 1
