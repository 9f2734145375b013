"""`penstock hives admin`: administrators and operators of the installation."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.options import ConfigFile, Data, Database, Overrides, prepare
from penstock.core.errors import ConfigurationError

app = typer.Typer(no_args_is_help=True, help="Administrators and operators of the installation.")


class StaffRole(StrEnum):
    ADMIN = "admin"
    OPERATOR = "operator"


@app.command("create")
def create(
    login: Annotated[str, typer.Argument(metavar="EMAIL", help="The e-mail address to sign in.")],
    role: Annotated[StaffRole, typer.Option(help="admin also assigns roles.")] = StaffRole.ADMIN,
    from_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    uid: Annotated[
        str | None,
        typer.Option(metavar="UID", help="Of the user at Firebase, if it is the issuer."),
    ] = None,
    database: Database = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Create an account with the role, or give the role to an existing account.

    An existing account keeps its password, and none is asked for.
    """
    import penstock_store
    from penstock_hives.identity.service import check_password, normalize_login

    home = prepare(file, pairs, data).settings.data
    login = normalize_login(login)
    with penstock_store.open(database, home) as opened:
        if asyncio.run(_appoint(opened.url, login, role, uid)):
            typer.echo(f"{login} is now {role}.")
            return
        password = _password(from_stdin)
        check_password(login, password)
        asyncio.run(_create(opened.url, login, password))
        asyncio.run(_appoint(opened.url, login, role))
    typer.echo(f"{login} was created as {role}. Sign in on the dashboards.")


def _password(from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise ConfigurationError("there is no terminal to ask for a password: use --password-stdin")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))


async def _create(database: str, login: str, password: str) -> None:
    import secrets

    from penstock.core.passwords import PasswordVerifier
    from penstock_hives.database import DatabasePool
    from penstock_hives.identity.repository import CredentialRepository, LocalCredential

    hashed = PasswordVerifier().hash(password)
    async with DatabasePool(database, 1, wait=30) as pool, pool.transaction() as connection:
        uid = f"l{secrets.token_urlsafe(20)}"
        await CredentialRepository(connection).add(LocalCredential(uid, login, hashed))


async def _appoint(database: str, login: str, role: StaffRole, uid: str | None = None) -> bool:
    """Give the role to the account of a login; returns whether there is one."""
    from penstock_hives.database import DatabasePool
    from penstock_hives.identity.repository import CredentialRepository
    from penstock_hives.people.repository import PeopleRepository

    async with DatabasePool(database, 1, wait=30) as pool, pool.transaction() as connection:
        credential = await CredentialRepository(connection).find(login)
        if uid is None and credential is not None:
            uid = credential.uid
        if uid is None:
            return False
        people = PeopleRepository(connection)
        caller = await people.caller(uid, datetime.now(UTC))
        assert caller.id is not None
        await people.change(caller.id, {"role": role.value})
        return True
