"""`penstock user permissions` and `topic-permissions`: what users may do, by regular expressions.

Permissions are RabbitMQ's: for a virtual host, which names a user may configure, write to and read
from. Topic permissions narrow, for an exchange, the routing keys they may publish or bind with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import ConfigFile, Data
from penstock.cli.users import Name, table, users_of

if TYPE_CHECKING:
    from penstock.broker.user import User
    from penstock.broker.users import Users

permissions = typer.Typer(
    no_args_is_help=True, help="Say which names a user may configure, write to and read from."
)
topic_permissions = typer.Typer(
    no_args_is_help=True, help="Say which routing keys a user may use with an exchange."
)

Vhost = Annotated[str, typer.Option("--vhost", metavar="VHOST", help="The virtual host.")]
Whom = Annotated[
    str | None, typer.Argument(metavar="[USER]", help="Of this user; of all if not given.")
]


def _pattern(metavar: str, what: str) -> typer.models.ArgumentInfo:
    argument: typer.models.ArgumentInfo = typer.Argument(metavar=metavar, help=what)
    return argument


@permissions.command("set")
def set_permissions(
    name: Name,
    configure: Annotated[str, _pattern("CONFIGURE", "Names to declare and delete; '' for none.")],
    write: Annotated[str, _pattern("WRITE", "Names to publish and bind to; '' for none.")],
    read: Annotated[str, _pattern("READ", "Names to consume and bind from; '' for none.")],
    vhost: Vhost = "/",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Give a user permissions in a virtual host; '.*' is everything."""
    from penstock.broker.permissions import Permission

    users_of(data, file).set_permissions(name, vhost, Permission(configure, write, read))


@permissions.command("clear")
def clear_permissions(
    name: Name, vhost: Vhost = "/", data: Data = None, file: ConfigFile = None
) -> None:
    """Take a user's permissions in a virtual host away."""
    users_of(data, file).clear_permissions(name, vhost)


@permissions.command("list")
def list_permissions(name: Whom = None, data: Data = None, file: ConfigFile = None) -> None:
    """List permissions: of a user, or of all."""
    table(
        ("user", "vhost", "configure", "write", "read"),
        [
            (user.name, vhost, granted.configure, granted.write, granted.read)
            for user in _chosen(users_of(data, file), name)
            for vhost, granted in sorted(user.permissions.items())
        ],
    )


@topic_permissions.command("set")
def set_topic_permissions(
    name: Name,
    exchange: Annotated[str, typer.Argument(metavar="EXCHANGE", help="A topic exchange.")],
    write: Annotated[str, _pattern("WRITE", "Routing keys to publish with.")],
    read: Annotated[str, _pattern("READ", "Routing keys to bind by.")],
    vhost: Vhost = "/",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Narrow a user's routing keys; {username}, {vhost} and {client_id} stand for themselves."""
    from penstock.broker.permissions import TopicPermission

    users = users_of(data, file)
    users.set_topic_permissions(name, vhost, exchange, TopicPermission(write, read))


@topic_permissions.command("clear")
def clear_topic_permissions(
    name: Name,
    exchange: Annotated[
        str | None, typer.Argument(metavar="[EXCHANGE]", help="All exchanges if not given.")
    ] = None,
    vhost: Vhost = "/",
    data: Data = None,
    file: ConfigFile = None,
) -> None:
    """Let a user use any routing key again."""
    users_of(data, file).clear_topic_permissions(name, vhost, exchange)


@topic_permissions.command("list")
def list_topic_permissions(name: Whom = None, data: Data = None, file: ConfigFile = None) -> None:
    """List topic permissions: of a user, or of all."""
    table(
        ("user", "vhost", "exchange", "write", "read"),
        [
            (user.name, vhost, exchange, granted.write, granted.read)
            for user in _chosen(users_of(data, file), name)
            for vhost, exchanges in sorted(user.topic_permissions.items())
            for exchange, granted in sorted(exchanges.items())
        ],
    )


def _chosen(users: Users, name: str | None) -> Iterator[User]:
    yield from users.all() if name is None else [users.get(name)]
