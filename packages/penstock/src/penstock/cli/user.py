"""`penstock user`: users, their permissions and tags.

Works on the users file of a data directory; a running broker reads a change within a second.
Passwords are prompted for or read from standard input, never from the command line, which all users
of the machine can read.

Permissions are RabbitMQ's: the names that a user may configure, write to and read from in a virtual
host. Topic permissions restrict the routing keys that a user may use with an exchange.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import AsJson, ConfigFile, Data, effective
from penstock.cli.table import print_table
from penstock.core.data_directory import private_directory
from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.broker.user import User
    from penstock.broker.users import Users


UserName = Annotated[str, typer.Argument(metavar="USER", help="The user.")]


def open_users(data: Path | None, file: Path | None) -> Users:
    """A new data directory has one user, guest."""
    from penstock.broker.users import Users

    directory = effective(file, data=data).settings.data
    private_directory(directory, traversable=True)
    users = Users(directory / "users.json")
    users.load()
    return users


permissions = typer.Typer(
    no_args_is_help=True, help="Names that a user may configure, write to and read from."
)
topic_permissions = typer.Typer(
    no_args_is_help=True, help="Routing keys that a user may use with an exchange."
)

Vhost = Annotated[str, typer.Option("--vhost", metavar="VHOST", help="Virtual host.")]
UserFilter = Annotated[str | None, typer.Argument(metavar="[USER]", help="Only this user.")]


@permissions.command("set")
def set_permissions(
    name: UserName,
    configure: Annotated[
        str, typer.Argument(metavar="CONFIGURE", help="Names to declare and delete; '' for none.")
    ],
    write: Annotated[
        str, typer.Argument(metavar="WRITE", help="Names to publish and bind to; '' for none.")
    ],
    read: Annotated[
        str, typer.Argument(metavar="READ", help="Names to consume and bind from; '' for none.")
    ],
    vhost: Vhost = "/",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Set a user's permissions in a virtual host; '.*' matches all names."""
    from penstock.broker.permissions import Permission

    open_users(data, file).set_permissions(name, vhost, Permission(configure, write, read))


@permissions.command("clear")
def clear_permissions(
    name: UserName, vhost: Vhost = "/", data: Data = None, file: ConfigFile = None
) -> None:
    """Remove a user's permissions in a virtual host."""
    open_users(data, file).clear_permissions(name, vhost)


@permissions.command("list")
def list_permissions(name: UserFilter = None, data: Data = None, file: ConfigFile = None) -> None:
    """List the permissions of all users, or of one."""
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
    write: Annotated[str, typer.Argument(metavar="WRITE", help="Routing keys to publish with.")],
    read: Annotated[str, typer.Argument(metavar="READ", help="Routing keys to bind by.")],
    vhost: Vhost = "/",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Restrict a user's routing keys; {username}, {vhost} and {client_id} are replaced."""
    from penstock.broker.permissions import TopicPermission

    users = open_users(data, file)
    users.set_topic_permissions(name, vhost, exchange, TopicPermission(write, read))


@topic_permissions.command("clear")
def clear_topic_permissions(
    name: UserName,
    exchange: Annotated[
        str | None, typer.Argument(metavar="[EXCHANGE]", help="Only this exchange.")
    ] = None,
    vhost: Vhost = "/",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Remove restrictions of a user's routing keys."""
    open_users(data, file).clear_topic_permissions(name, vhost, exchange)


@topic_permissions.command("list")
def list_topic_permissions(
    name: UserFilter = None, data: Data = None, file: ConfigFile = None
) -> None:
    """List the topic permissions of all users, or of one."""
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


app = typer.Typer(no_args_is_help=True, help="Manage users, passwords, permissions and tags.")
app.add_typer(permissions, name="permissions")
app.add_typer(topic_permissions, name="topic-permissions")

FromStdin = Annotated[
    bool,
    typer.Option("--password-stdin", help="Read the password from standard input."),
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
        bool, typer.Option("--full", help="Grant all permissions in the virtual host.")
    ] = False,
    vhost: Vhost = "/",
    client_ids: Annotated[
        str,
        typer.Option("--client-ids", metavar="REGEX", help="Allowed client ids over MQTT."),
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing user.")] = False,
    from_stdin: FromStdin = False,
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Add a user, without permissions unless --full."""
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
    users.get(name)  # before the password is typed
    users.set_password(name, _password(from_stdin))


@app.command()
def delete(name: UserName, data: Data = None, file: ConfigFile = None) -> None:
    """Delete a user."""
    open_users(data, file).delete(name)


@app.command()
def tags(
    name: UserName,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="Without tags, all are removed.")
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Set a user's tags: access to the management API; overlay, to link brokers."""
    open_users(data, file).set_tags(name, tuple(tags or ()))


@app.command()
def client_ids(
    name: UserName,
    pattern: Annotated[
        str, typer.Argument(metavar="[REGEX]", help="Matches whole ids; without it, any id.")
    ] = "",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Set the client ids that a user may use over MQTT."""
    open_users(data, file).set_client_ids(name, pattern)


@app.command("list")
def show(
    as_json: AsJson = False,
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """List users with their tags, virtual hosts and MQTT client ids."""
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
        raise ConfigurationError("the password is empty: it should have at least one character")
    return given
