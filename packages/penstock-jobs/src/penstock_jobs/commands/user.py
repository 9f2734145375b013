"""`penstock job user` and `penstock job audit`: who may use the API and the pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Data, Database
from penstock_jobs.commands.options import history

if TYPE_CHECKING:
    from penstock_jobs.users.repository import JobRole, UserRepository

app = typer.Typer(no_args_is_help=True, help="Users of the job API and the job pages.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
RoleName = Annotated[
    str, typer.Option("--role", help="submitter (own jobs), viewer (reads all) or operator.")
]
Password = Annotated[
    str | None,
    typer.Option(
        envvar="PENSTOCK_JOBS_PASSWORD",
        help="The password; asked for if missing. Prefer the variable to the option.",
        show_envvar=True,
    ),
]
Label = Annotated[str | None, typer.Option(help="A name for the token.")]


@contextmanager
def _users(database: str | None, data: Path | None) -> Iterator[UserRepository]:
    from penstock_jobs.users.repository import UserRepository

    with history(database, data) as store:
        yield UserRepository(store)


@app.command()
def add(
    name: Name,
    role: RoleName = "submitter",
    password: Password = None,
    database: Database = None,
    data: Data = None,
) -> None:
    """Add a user."""
    chosen, hashed = _role(role), _hash(password)
    with _users(database, data) as users:
        users.add(name, hashed, chosen)


@app.command("list")
def list_(database: Database = None, data: Data = None) -> None:
    """List users and their roles."""
    with _users(database, data) as users:
        for user in users.users():
            typer.echo(f"{user.name}  {user.role}")


@app.command()
def role(
    name: Name,
    role: Annotated[str, typer.Argument(help="submitter, viewer or operator.")],
    database: Database = None,
    data: Data = None,
) -> None:
    """Change the role of a user."""
    with _users(database, data) as users:
        users.change(name, role=_role(role))


@app.command()
def password(
    name: Name, password: Password = None, database: Database = None, data: Data = None
) -> None:
    """Change the password of a user; it ends their sessions."""
    hashed = _hash(password)
    with _users(database, data) as users:
        users.change(name, password_hash=hashed)


@app.command()
def remove(name: Name, database: Database = None, data: Data = None) -> None:
    """Remove a user with all tokens and sessions; their jobs stay."""
    with _users(database, data) as users:
        users.remove(name)


@app.command()
def token(name: Name, label: Label = None, database: Database = None, data: Data = None) -> None:
    """Create a token for the API and print it; it is not stored."""
    with _users(database, data) as users:
        typer.echo(users.new_token(name, label or ""))


@app.command()
def revoke(name: Name, label: Label = None, database: Database = None, data: Data = None) -> None:
    """Revoke the tokens of a user, all or those with a label."""
    with _users(database, data) as users:
        typer.echo(f"{users.revoke_tokens(name, label)} tokens revoked")


def audit(
    job: Annotated[str | None, typer.Option(metavar="ID", help="Only of this job.")] = None,
    size: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 100,
    database: Database = None,
    data: Data = None,
) -> None:
    """Print the audit log, the newest first."""
    with _users(database, data) as users:
        for each in users.audit(size, job):
            when = each.at.astimezone().isoformat(" ", "seconds")
            typer.echo(f"{when}  {each.who}  {each.action}  {each.job}  {each.detail}".rstrip())


def _role(text: str) -> JobRole:
    from penstock_jobs.users.repository import JobRole

    try:
        return JobRole(text)
    except ValueError:
        raise typer.BadParameter(f"role {text!r}: must be {', '.join(JobRole)}") from None


def _hash(password: str | None) -> str:
    from penstock.core.passwords import argon2_hasher
    from penstock_jobs.users.repository import MIN_PASSWORD

    if password is None:
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    if len(password) < MIN_PASSWORD:
        raise typer.BadParameter(f"the password has fewer than {MIN_PASSWORD} characters")
    return argon2_hasher().hash(password)
