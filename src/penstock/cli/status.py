"""`penstock broker status`: what a running broker does right now.

It asks the management API, which is RabbitMQ's: it looks at a RabbitMQ as well.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import typer

from penstock.cli.management import ask, management_url
from penstock.cli.options import ConfigFile, ManagementUrl, Overrides, effective
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

#: Rows of queues, and of connections, that are shown.
MOST_ROWS: Final = 10


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
    seen = _look(address)
    if as_json:
        typer.echo(json.dumps(seen, indent=2))
    elif not watch:
        Console(highlight=False).print(_picture(seen))
    else:
        with Live(_picture(seen), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(_picture(_look(address)), refresh=True)


def _as_user(address: str, user: str | None, password: str | None) -> str:
    """The address with the credentials given, each in the place of its own."""
    parts = urlsplit(address)
    name = (parts.username or "guest") if user is None else quote(user, safe="")
    secret = (parts.password or "guest") if password is None else quote(password, safe="")
    return parts._replace(netloc=f"{name}:{secret}@{parts.netloc.rpartition('@')[2]}").geturl()


def _look(address: str) -> dict[str, Any]:
    first = {"page": 1, "page_size": MOST_ROWS}
    fullest = urlencode({"sort": "messages", "sort_reverse": "true", **first})
    return {
        "overview": ask(address, "/api/overview"),
        "alarms": _alarms(address),
        "queues": ask(address, f"/api/queues?{fullest}"),
        "connections": ask(address, f"/api/connections?{urlencode(first)}"),
    }


def _alarms(address: str) -> str:
    """Why publishers wait, or nothing."""
    try:
        ask(address, "/api/health/checks/alarms")
    except PenstockError as error:  # the check answers 503, and says why
        _, brace, answer = str(error).partition("{")
        reason: str = json.loads(brace + answer).get("reason", "") if brace else str(error)
        return reason
    return ""


# What it looks like.


def _picture(seen: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    parts = (
        _broker(seen["overview"], seen["alarms"]),
        _rates(seen["overview"]),
        _queues(seen["queues"]),
        _connections(seen["connections"]),
    )
    return Group(*(line for part in parts for line in (part, "")))


def _table(*headings: str) -> Table:
    """A heading that begins with > is of numbers."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        justify, text = ("right", heading[1:]) if heading.startswith(">") else ("left", heading)
        table.add_column(text, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


def _broker(overview: dict[str, Any], alarms: str) -> Table:
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


def _rates(overview: dict[str, Any]) -> Table:
    stats, totals = overview.get("message_stats") or {}, overview.get("queue_totals") or {}
    table = _table("messages", ">a second", ">in all")
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


def _queues(page: dict[str, Any]) -> Table:
    from rich.text import Text

    table = _table(f"queue ({_of(page)})", "vhost", "type", ">ready", ">unacked", ">consumers")
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


def _connections(page: dict[str, Any]) -> Table:
    from rich.text import Text

    table = _table(f"connection ({_of(page)})", "user", "vhost", "protocol", "state", ">channels")
    for row in page["items"]:
        cells = (row["name"], row.get("user"), row.get("vhost"), row.get("protocol"))
        table.add_row(
            *(Text(str(cell or "")) for cell in cells),
            str(row.get("state", "")),
            f"{row.get('channels', 0):,}",
        )
    return table


def _of(page: dict[str, Any]) -> str:
    shown, total = page["item_count"], page["total_count"]
    return f"{total:,}" if shown == total else f"{shown} of {total:,}"
