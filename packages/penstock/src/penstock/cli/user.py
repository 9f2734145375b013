"""`penstock user`: who may come in and what they may do.

Works on the users file of a data directory, whether or not its broker runs: a running one takes
up the change by itself, within a second. Passwords are asked for, or read from standard input;
never taken from the command line, which every process on the machine can read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import ConfigFile, Data, effective
from penstock.core.data_directory import private_directory
from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.broker.user import User
    from penstock.broker.users import Users


# The users of a data directory, as the commands about them reach and show them.

UserName = Annotated[str, typer.Argument(metavar="USER", help="The user.")]


def open_users(data: Path | None, file: Path | None) -> Users:
    """The users the configuration leads to; a new directory has one, guest."""
    from penstock.broker.users import Users

    directory = effective(file, data=data).settings.data
    private_directory(directory, traversable=True)
    users = Users(directory / "users.json")
    users.load()
    return users


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        shown.add_column(heading, overflow="fold")
    for row in rows:
        shown.add_row(*map(Text, row))  # a name may look like markup; it is none
    Console().print(shown)


# `penstock user permissions` and `topic-permissions`: what users may do, by regular expressions.
#
# Permissions are RabbitMQ's: for a virtual host, which names a user may configure, write to and
# read from. Topic permissions narrow, for an exchange, the routing keys they may publish or bind
# with.

permissions = typer.Typer(
    no_args_is_help=True, help="Say which names a user may configure, write to and read from."
)
topic_permissions = typer.Typer(
    no_args_is_help=True, help="Say which routing keys a user may use with an exchange."
)

Vhost = Annotated[str, typer.Option("--vhost", metavar="VHOST", help="The virtual host.")]
UserFilter = Annotated[
    str | None, typer.Argument(metavar="[USER]", help="Of this user; of all if not given.")
]


def _pattern(metavar: str, what: str) -> typer.models.ArgumentInfo:
    argument: typer.models.ArgumentInfo = typer.Argument(metavar=metavar, help=what)
    return argument


@permissions.command("set")
def set_permissions(
    name: UserName,
    configure: Annotated[str, _pattern("CONFIGURE", "Names to declare and delete; '' for none.")],
    write: Annotated[str, _pattern("WRITE", "Names to publish and bind to; '' for none.")],
    read: Annotated[str, _pattern("READ", "Names to consume and bind from; '' for none.")],
    vhost: Vhost = "/",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Give a user permissions in a virtual host; '.*' is everything."""
    from penstock.broker.permissions import Permission

    open_users(data, file).set_permissions(name, vhost, Permission(configure, write, read))


@permissions.command("clear")
def clear_permissions(
    name: UserName, vhost: Vhost = "/", data: Data = None, file: ConfigFile = None
) -> None:
    """Take a user's permissions in a virtual host away."""
    open_users(data, file).clear_permissions(name, vhost)


@permissions.command("list")
def list_permissions(name: UserFilter = None, data: Data = None, file: ConfigFile = None) -> None:
    """List permissions: of a user, or of all."""
    print_table(
        ("user", "vhost", "configure", "write", "read"),
        [
            (user.name, vhost, granted.configure, granted.write, granted.read)
            for user in _selected_users(open_users(data, file), name)
            for vhost, granted in sorted(user.permissions.items())
        ],
    )


@topic_permissions.command("set")
def set_topic_permissions(
    name: UserName,
    exchange: Annotated[str, typer.Argument(metavar="EXCHANGE", help="A topic exchange.")],
    write: Annotated[str, _pattern("WRITE", "Routing keys to publish with.")],
    read: Annotated[str, _pattern("READ", "Routing keys to bind by.")],
    vhost: Vhost = "/",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Narrow a user's routing keys; {username}, {vhost} and {client_id} stand for themselves."""
    from penstock.broker.permissions import TopicPermission

    users = open_users(data, file)
    users.set_topic_permissions(name, vhost, exchange, TopicPermission(write, read))


@topic_permissions.command("clear")
def clear_topic_permissions(
    name: UserName,
    exchange: Annotated[
        str | None, typer.Argument(metavar="[EXCHANGE]", help="All exchanges if not given.")
    ] = None,
    vhost: Vhost = "/",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Let a user use any routing key again."""
    open_users(data, file).clear_topic_permissions(name, vhost, exchange)


@topic_permissions.command("list")
def list_topic_permissions(
    name: UserFilter = None, data: Data = None, file: ConfigFile = None
) -> None:
    """List topic permissions: of a user, or of all."""
    print_table(
        ("user", "vhost", "exchange", "write", "read"),
        [
            (user.name, vhost, exchange, granted.write, granted.read)
            for user in _selected_users(open_users(data, file), name)
            for vhost, exchanges in sorted(user.topic_permissions.items())
            for exchange, granted in sorted(exchanges.items())
        ],
    )


def _selected_users(users: Users, name: str | None) -> Iterator[User]:
    yield from users.all() if name is None else [users.get(name)]


app = typer.Typer(no_args_is_help=True, help="Say who may come in and what they may do.")
app.add_typer(permissions, name="permissions")
app.add_typer(topic_permissions, name="topic-permissions")

FromStdin = Annotated[
    bool,
    typer.Option("--password-stdin", help="Read the password from standard input, a line."),
]


@app.command()
def add(
    name: UserName,
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

    users = open_users(data, file)
    if replace and name in {user.name for user in users.all()}:
        users.delete(name)
    users.add(name, _password(from_stdin), tuple(tags or ()), client_ids)
    if full:
        users.set_permissions(name, vhost, Permission(".*", ".*", ".*"))


@app.command()
def password(
    name: UserName, from_stdin: FromStdin = False, data: Data = None, file: ConfigFile = None
) -> None:
    """Change a user's password."""
    users = open_users(data, file)
    users.get(name)  # nobody should type a password for a user there is not
    users.set_password(name, _password(from_stdin))


@app.command()
def delete(name: UserName, data: Data = None, file: ConfigFile = None) -> None:
    """Delete a user."""
    open_users(data, file).delete(name)


@app.command()
def tags(
    name: UserName,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="None takes all away.")
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Set a user's tags: what they may do in the management API; overlay, to link brokers."""
    open_users(data, file).set_tags(name, tuple(tags or ()))


@app.command()
def client_ids(
    name: UserName,
    pattern: Annotated[
        str, typer.Argument(metavar="[REGEX]", help="Matches a whole id. None lets any be used.")
    ] = "",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Say which client ids a user may have when connecting over MQTT."""
    open_users(data, file).set_client_ids(name, pattern)


@app.command("list")
def show(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """List users, their tags, the virtual hosts they may use and their MQTT client ids."""
    users = open_users(data, file).all()
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
    print_table(
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
