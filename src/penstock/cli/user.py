"""`penstock user`: who may come in and what they may do.

Works on the users file of a data directory, whether or not its broker runs: a running one takes
up the change by itself, within a second. Passwords are asked for, or read from standard input;
never taken from the command line, which every process on the machine can read.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from penstock.cli.options import ConfigFile, Data
from penstock.cli.permissions import Vhost, permissions, topic_permissions
from penstock.cli.users import Name, table, users_of
from penstock.core.errors import ConfigurationError

app = typer.Typer(no_args_is_help=True, help="Say who may come in and what they may do.")
app.add_typer(permissions, name="permissions")
app.add_typer(topic_permissions, name="topic-permissions")

FromStdin = Annotated[
    bool,
    typer.Option("--password-stdin", help="Read the password from standard input, a line."),
]


@app.command()
def add(
    name: Name,
    tags: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            metavar="TAG",
            help="administrator, monitoring or management; overlay for links of other brokers; "
            "repeatable.",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="May do everything in the virtual host.")
    ] = False,
    vhost: Vhost = "/",
    client_ids: Annotated[
        str,
        typer.Option(
            "--client-ids", metavar="REGEX", help="The client ids that may connect over MQTT."
        ),
    ] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="In place of a user of that name, if there is one.")
    ] = False,
    from_stdin: FromStdin = False,
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Add a user, who may do nothing yet unless --full."""
    from penstock.broker.permissions import Permission

    users = users_of(data, file)
    if replace and name in {user.name for user in users.all()}:
        users.delete(name)
    users.add(name, _password(from_stdin), tuple(tags or ()), client_ids)
    if full:
        users.set_permissions(name, vhost, Permission(".*", ".*", ".*"))


@app.command()
def password(
    name: Name, from_stdin: FromStdin = False, data: Data = None, file: ConfigFile = None
) -> None:
    """Change a user's password."""
    users = users_of(data, file)
    users.get(name)  # nobody should type a password for a user there is not
    users.set_password(name, _password(from_stdin))


@app.command()
def delete(name: Name, data: Data = None, file: ConfigFile = None) -> None:
    """Delete a user."""
    users_of(data, file).delete(name)


@app.command()
def tags(
    name: Name,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="None takes all away.")
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Set a user's tags: what they may do in the management API; overlay, to link brokers."""
    users_of(data, file).set_tags(name, tuple(tags or ()))


@app.command()
def client_ids(
    name: Name,
    pattern: Annotated[
        str, typer.Argument(metavar="[REGEX]", help="Matches a whole id. None lets any be used.")
    ] = "",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Say which client ids a user may have when connecting over MQTT."""
    users_of(data, file).set_client_ids(name, pattern)


@app.command("list")
def show(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """List users, their tags, the virtual hosts they may use and their MQTT client ids."""
    users = users_of(data, file).all()
    if as_json:
        rows: list[dict[str, Any]] = [
            {
                "name": user.name,
                "tags": list(user.tags),
                "vhosts": sorted(user.permissions),
                "client_ids": user.client_ids,
            }
            for user in users
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table(
        ("user", "tags", "vhosts", "client-ids"),
        [
            (user.name, " ".join(user.tags), " ".join(sorted(user.permissions)), user.client_ids)
            for user in users
        ],
    )


def _password(from_stdin: bool) -> str:
    if from_stdin:
        given = typer.get_text_stream("stdin").readline().rstrip("\r\n")
    else:
        given = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not given:
        raise ConfigurationError("the password is empty; should be one character or more")
    return given
