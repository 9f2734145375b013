"""`penstock broker`: runs a broker; `penstock broker status` shows a running one.

The status comes from the management API, which is RabbitMQ's, so it works with RabbitMQ as well.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import typer

from penstock.cli.options import (
    AsJson,
    ConfigFile,
    Data,
    Listen,
    ManagementUrl,
    Overrides,
    StopWithStdin,
    effective,
    prepare,
)
from penstock.cli.shutdown import stop_event
from penstock.cli.table import new_table
from penstock.client.management import (
    ManagementServerError,
    call_management_api,
    management_url,
)
from penstock.core.config import Settings
from penstock.core.garbage_collection import short_gc_pauses
from penstock.core.resources import raise_descriptor_limit, set_mmap_threshold

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


#: Rows of queues, and of connections, that are shown.
MAX_ROWS: Final = 10


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

    address = management_url(effective(file, pairs).settings.broker, url)
    address = _as_user(address, user, password)
    found = _fetch_status(address)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif not watch:
        Console(highlight=False).print(_render_status(found))
    else:
        with Live(_render_status(found), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(_render_status(_fetch_status(address)), refresh=True)


def _as_user(address: str, user: str | None, password: str | None) -> str:
    """The address with the given user and password."""
    parts = urlsplit(address)
    name = (parts.username or "guest") if user is None else quote(user, safe="")
    secret = (parts.password or "guest") if password is None else quote(password, safe="")
    return parts._replace(netloc=f"{name}:{secret}@{parts.netloc.rpartition('@')[2]}").geturl()


def _fetch_status(address: str) -> dict[str, Any]:
    first = {"page": 1, "page_size": MAX_ROWS}
    longest = urlencode({"sort": "messages", "sort_reverse": "true", **first})
    return {
        "overview": call_management_api(address, "/api/overview"),
        "alarms": _alarms(address),
        "queues": call_management_api(address, f"/api/queues?{longest}"),
        "connections": call_management_api(address, f"/api/connections?{urlencode(first)}"),
    }


def _alarms(address: str) -> str:
    """Why publishers are blocked; empty without an alarm."""
    try:
        call_management_api(address, "/api/health/checks/alarms")
    except ManagementServerError as error:  # the check answers 503
        return error.reason
    return ""


def _render_status(found: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    parts = (
        _broker_table(found["overview"], found["alarms"]),
        _rates_table(found["overview"]),
        _queues_table(found["queues"]),
        _connections_table(found["connections"]),
    )
    return Group(*(line for part in parts for line in (part, "")))


def _broker_table(overview: dict[str, Any], alarms: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    totals = overview.get("object_totals") or {}
    kinds = ("connections", "channels", "consumers", "queues", "exchanges")
    listeners = [
        f"{entry['protocol']} {entry['ip_address']}:{entry['port']}"
        for entry in overview.get("listeners", [])
    ]
    product = f"{overview.get('product_name', '')} {overview.get('product_version', '')}"
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_row("node", Text(f"{overview.get('node', '')} · {product}", style="bold"))
    table.add_row("listeners", Text("   ".join(listeners)))
    table.add_row("objects", ", ".join(f"{totals.get(kind, 0):,} {kind}" for kind in kinds))
    table.add_row("alarms", Text(alarms or "none", style="bold red" if alarms else "green"))
    return table


def _rates_table(overview: dict[str, Any]) -> Table:
    stats, totals = overview.get("message_stats") or {}, overview.get("queue_totals") or {}
    table = new_table("messages", ">per second", ">total")
    for label, name in (
        ("published", "publish"),
        ("confirmed", "confirm"),
        ("delivered", "deliver_get"),
        ("acknowledged", "ack"),
    ):
        rate = (stats.get(f"{name}_details") or {}).get("rate", 0.0)
        table.add_row(label, f"{rate:,.0f}", f"{stats.get(name, 0):,}")
    for label in ("ready", "unacknowledged"):
        table.add_row(label, "", f"{totals.get(f'messages_{label}', 0):,}")
    return table


def _queues_table(page: dict[str, Any]) -> Table:
    from rich.text import Text

    table = new_table(
        f"queue ({_shown_of_total(page)})", "vhost", "type", ">ready", ">unacked", ">consumers"
    )
    for row in page["items"]:
        table.add_row(
            Text(row["name"]),
            Text(row["vhost"]),
            row.get("type", "classic"),
            f"{row.get('messages_ready', 0):,}",
            f"{row.get('messages_unacknowledged', 0):,}",
            f"{row.get('consumers', 0):,}",
        )
    return table


def _connections_table(page: dict[str, Any]) -> Table:
    from rich.text import Text

    table = new_table(
        f"connection ({_shown_of_total(page)})", "user", "vhost", "protocol", "state", ">channels"
    )
    for row in page["items"]:
        cells = (row["name"], row.get("user"), row.get("vhost"), row.get("protocol"))
        table.add_row(
            *(Text(str(cell or "")) for cell in cells),
            str(row.get("state", "")),
            f"{row.get('channels', 0):,}",
        )
    return table


def _shown_of_total(page: dict[str, Any]) -> str:
    shown, total = page["item_count"], page["total_count"]
    return f"{total:,}" if shown == total else f"{shown} of {total:,}"


app = typer.Typer(help="Run a broker, or show the status of a running one.")
app.command()(status)


@app.callback(invoke_without_command=True)
def broker(
    context: typer.Context,
    file: ConfigFile = None,
    pairs: Overrides = None,
    data: Data = None,
    listen: Listen = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Run a broker. It prints a line when it is ready, and stops on SIGTERM or Ctrl-C."""
    if context.invoked_subcommand is None:
        from penstock.server.event_loop import new_event_loop

        settings = prepare(file, pairs, data, listen).settings
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_run(settings, with_stdin))


async def _run(settings: Settings, with_stdin: bool) -> None:
    from penstock.server import Broker

    set_mmap_threshold()
    raise_descriptor_limit()
    async with (
        stop_event(with_stdin) as stop,
        Broker(settings.broker, data=settings.data, on_shutdown=stop.set) as broker,
    ):
        typer.echo(f"penstock broker ready: {' '.join(broker.addresses)}")
        with short_gc_pauses():
            await stop.wait()
