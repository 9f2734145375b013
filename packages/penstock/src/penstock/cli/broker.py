"""`penstock broker`: the broker alone, until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import typer

from penstock.cli.options import (
    ConfigFile,
    Data,
    Listen,
    ManagementUrl,
    Overrides,
    effective,
    prepare,
)
from penstock.cli.shutdown import stop_event
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


# `penstock broker status`: what a running broker does right now.
#
# It asks the management API, which is RabbitMQ's: it looks at a RabbitMQ as well.

#: Rows of queues, and of connections, that are shown.
MAX_ROWS: Final = 10


def status(
    url: ManagementUrl = None,
    user: Annotated[
        str | None, typer.Option("--user", help="Who asks; the URL's user, or guest.")
    ] = None,
    password: Annotated[
        str | None,
        typer.Option(
            "--password", envvar="PENSTOCK_PASSWORD", help="That user's; the URL's, or guest."
        ),
    ] = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Keep looking, until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.2, help="How often, then.")
    ] = 2.0,
) -> None:
    """Show what a running broker does: rates, alarms, the fullest queues, who is connected."""
    from rich.console import Console
    from rich.live import Live

    address = management_url(effective(file, pairs).settings.broker, url)
    address = _as_user(address, user, password)
    seen = _fetch_status(address)
    if as_json:
        typer.echo(json.dumps(seen, indent=2))
    elif not watch:
        Console(highlight=False).print(_render_status(seen))
    else:
        with Live(_render_status(seen), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(_render_status(_fetch_status(address)), refresh=True)


def _as_user(address: str, user: str | None, password: str | None) -> str:
    """The address with the credentials given, each in the place of its own."""
    parts = urlsplit(address)
    name = (parts.username or "guest") if user is None else quote(user, safe="")
    secret = (parts.password or "guest") if password is None else quote(password, safe="")
    return parts._replace(netloc=f"{name}:{secret}@{parts.netloc.rpartition('@')[2]}").geturl()


def _fetch_status(address: str) -> dict[str, Any]:
    first = {"page": 1, "page_size": MAX_ROWS}
    fullest = urlencode({"sort": "messages", "sort_reverse": "true", **first})
    return {
        "overview": call_management_api(address, "/api/overview"),
        "alarms": _alarms(address),
        "queues": call_management_api(address, f"/api/queues?{fullest}"),
        "connections": call_management_api(address, f"/api/connections?{urlencode(first)}"),
    }


def _alarms(address: str) -> str:
    """Why publishers wait, or nothing."""
    try:
        call_management_api(address, "/api/health/checks/alarms")
    except ManagementServerError as error:  # the check answers 503
        return error.reason
    return ""


# What it looks like.


def _render_status(seen: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    parts = (
        _broker_table(seen["overview"], seen["alarms"]),
        _rates_table(seen["overview"]),
        _queues_table(seen["queues"]),
        _connections_table(seen["connections"]),
    )
    return Group(*(line for part in parts for line in (part, "")))


def _new_table(*headings: str) -> Table:
    """A heading that begins with > is of numbers."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        justify, text = ("right", heading[1:]) if heading.startswith(">") else ("left", heading)
        table.add_column(text, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


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
    table.add_row("listens", Text("   ".join(listeners)))
    table.add_row("holds", ", ".join(f"{totals.get(kind, 0):,} {kind}" for kind in kinds))
    table.add_row("alarms", Text(alarms or "none", style="bold red" if alarms else "green"))
    return table


def _rates_table(overview: dict[str, Any]) -> Table:
    stats, totals = overview.get("message_stats") or {}, overview.get("queue_totals") or {}
    table = _new_table("messages", ">a second", ">in all")
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

    table = _new_table(
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

    table = _new_table(
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


app = typer.Typer(help="Run a broker alone, or look at one that runs.")
app.command()(status)


@app.callback(invoke_without_command=True)
def broker(
    context: typer.Context,
    file: ConfigFile = None,
    pairs: Overrides = None,
    data: Data = None,
    listen: Listen = None,
    with_stdin: Annotated[
        bool,
        typer.Option("--stop-with-stdin", help="Stop when standard input ends.", hidden=True),
    ] = False,
) -> None:
    """Run a broker alone: one line when it is ready, a clean stop on SIGTERM or Ctrl-C."""
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
