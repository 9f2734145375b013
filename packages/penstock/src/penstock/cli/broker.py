"""`penstock broker`: runs a broker; `penstock broker status` shows a running one.

A broker imports little at its start, so what only `status` needs is in `broker_status.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Annotated

import typer

from penstock.cli.options import (
    AsJson,
    Cluster,
    ConfigFile,
    Data,
    Follow,
    Listen,
    ManagementUrl,
    Overrides,
    StopWithStdin,
    effective,
    prepare,
)
from penstock.cli.shutdown import stop_event
from penstock.core.config import Settings
from penstock.core.garbage_collection import short_gc_pauses
from penstock.core.resources import (
    raise_descriptor_limit,
    return_free_memory,
    set_mmap_threshold,
    set_trim_threshold,
)
from penstock.core.service_manager import ready


def status(
    url: ManagementUrl = None,
    user: Annotated[
        str | None,
        typer.Option("--user", help="User of the management API. [default: of the URL, or guest]"),
    ] = None,
    password: Annotated[
        str | None,
        typer.Option(
            "--password", envvar="PENSTOCK_PASSWORD", help="[default: of the URL, or guest]"
        ),
    ] = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Update until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.2, help="Update interval.")
    ] = 2.0,
) -> None:
    """Show rates, alarms, the longest queues and the connections of a running broker."""
    from rich.console import Console
    from rich.live import Live

    from penstock.cli.broker_status import as_user, fetch_status, render_status
    from penstock.client.management import management_url

    address = management_url(effective(file, pairs).settings.broker, url)
    address = as_user(address, user, password)
    found = fetch_status(address)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif not watch:
        Console(highlight=False).print(render_status(found))
    else:
        with Live(render_status(found), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(render_status(fetch_status(address)), refresh=True)


app = typer.Typer(help="Run a broker, or show the status of a running one.")
app.command()(status)


@app.callback(invoke_without_command=True)
def broker(
    context: typer.Context,
    file: ConfigFile = None,
    pairs: Overrides = None,
    data: Data = None,
    listen: Listen = None,
    cluster: Cluster = None,
    follow: Follow = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Run a broker. It prints a line when it is ready, and stops on SIGTERM or Ctrl-C."""
    if context.invoked_subcommand is None:
        from penstock.server.event_loop import new_event_loop

        settings = prepare(file, pairs, data, listen, cluster, follow).settings
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_run(settings, with_stdin))


async def _run(settings: Settings, with_stdin: bool) -> None:
    from penstock.cluster.member import with_remembered_cluster
    from penstock.server import Broker

    set_mmap_threshold()
    raise_descriptor_limit()
    own = with_remembered_cluster(settings.broker, settings.data)
    if own.cluster.enabled:
        from penstock.server.cluster_member import ClusterMember

        run: type[Broker | ClusterMember] = ClusterMember
    else:
        run = Broker
    async with stop_event(with_stdin) as stop, contextlib.AsyncExitStack() as stack:
        broker = run(own, data=settings.data, on_shutdown=stop.set)
        starting = asyncio.ensure_future(stack.enter_async_context(broker))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done() and own.cluster.enabled:  # it may wait for etcd or PostgreSQL
            starting.cancel()
            await asyncio.wait((starting,))
            return
        await starting
        typer.echo(f"penstock broker ready: {' '.join(broker.addresses)}")
        async with ready(f"listening on {' '.join(broker.addresses)}"):
            with short_gc_pauses():
                return_free_memory()  # the start has taken more than it needs now
                set_trim_threshold()
                await stop.wait()
