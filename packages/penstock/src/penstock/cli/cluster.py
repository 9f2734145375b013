"""`penstock cluster`: the members of a cluster, and who leads."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer

from penstock.cli.options import AsJson, ConfigFile, Data, ManagementUrl, Overrides, effective
from penstock.cli.table import new_table
from penstock.client.management import call_management_api, management_url

app = typer.Typer(help="Show and change the members of a cluster.", no_args_is_help=True)

MemberUrl = ManagementUrl


def _address(url: str | None, file: Any, pairs: list[str] | None) -> str:
    return management_url(effective(file, pairs).settings.broker, url)


@app.command()
def status(
    url: MemberUrl = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show the leader, the epoch, the in-sync set, and how far followers are behind."""
    from rich.console import Console
    from rich.text import Text

    found = call_management_api(_address(url, file, pairs), "/api/cluster")
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    typer.echo(f"cluster {found['cluster']}, epoch {found['epoch']} ({found['coordinator']})")
    typer.echo(f"leader  {found['leader'] or 'none'}")
    if found["role"] != "leader":
        link = found["link"]
        state = "copying" if found["copying"] else "connected" if link else "not connected"
        typer.echo(f"member  {found['node']}: follower, {state}")
        typer.echo(f"in sync {', '.join(found['in_sync']) or 'unknown'}")
        return
    table = new_table("member", "role", "in sync", ">lag", ">lag (s)")
    for one in found["members"]:
        in_sync = "yes" if one["in_sync"] else "no"
        lag = f"{one['lag_bytes']:,}" if one["connected"] else "not connected"
        table.add_row(Text(one["node"]), one["role"], in_sync, lag, f"{one['lag_seconds']:.1f}")
    Console(highlight=False).print(table)


@app.command()
def join(
    cluster: Annotated[
        str,
        typer.Argument(metavar="URL", help="etcd://…/NAME, postgresql://…, or a leader."),
    ],
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Make a data directory that of a member; `penstock broker --data DIR` then starts it."""
    from penstock.cluster.member import Member
    from penstock.core.data_directory import lock_directory, private_directory
    from penstock.server.broker import LOCK_NAME

    follows = cluster.startswith(("penstock://", "penstocks://"))
    found = effective(
        file, pairs, data, None, None if follows else cluster, cluster if follows else None
    ).settings
    private_directory(found.data, traversable=True)
    with lock_directory(found.data, LOCK_NAME, "stop it first"):
        member = Member.load(found.data, found.broker.cluster.node, found.broker.cluster.secret)
        if not follows:
            asyncio.run(_check(found.broker.cluster, member))
        member.url = cluster
        member.save()
    typer.echo(f"{member.node} is a member; start it: penstock broker --data {found.data}")


async def _check(settings: Any, member: Any) -> None:
    """Whether the cluster can be reached, and the data belongs to it."""
    from penstock.cluster.coordinators import open_coordinator, unusable

    coordinator = open_coordinator(settings, member.node)
    assert coordinator is not None
    try:
        identity, _ = await coordinator.identify(member.cluster)
        view = await coordinator.view()
    except OSError as error:
        raise unusable(error) from error
    if view.in_sync is not None:  # it has data, which this directory will get
        member.join(identity)


@app.command()
def leave(
    node: Annotated[str, typer.Argument(help="The member, as `status` names it.")],
    url: MemberUrl = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Remove a stopped member from the in-sync set without waiting; ask the leader."""
    call_management_api(_address(url, file, pairs), "/api/cluster/leave", {"node": node})
    typer.echo(f"{node} left")


@app.command()
def promote(
    url: MemberUrl = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Lead although messages may be lost, or another may lead."),
    ] = False,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Make the member at --url lead."""
    answer = call_management_api(
        _address(url, file, pairs), "/api/cluster/promote", {"force": force}
    )
    typer.echo(f"{answer['node']} will lead")
