"""What `penstock broker status` shows: rates, alarms, the longest queues, the connections.

It comes from the management API, which is RabbitMQ's, so it works with RabbitMQ as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.cli.table import new_table
from penstock.client.management import ManagementServerError, call_management_api

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Rows of queues, and of connections, that are shown.
MAX_ROWS: Final = 10


def as_user(address: str, user: str | None, password: str | None) -> str:
    """The address with the given user and password."""
    parts = urlsplit(address)
    name = (parts.username or "guest") if user is None else quote(user, safe="")
    secret = (parts.password or "guest") if password is None else quote(password, safe="")
    return parts._replace(netloc=f"{name}:{secret}@{parts.netloc.rpartition('@')[2]}").geturl()


def fetch_status(address: str) -> dict[str, Any]:
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


def render_status(found: dict[str, Any]) -> RenderableType:
    parts = (
        _broker_table(found["overview"], found["alarms"]),
        _rates_table(found["overview"]),
        _queues_table(found["queues"]),
        _connections_table(found["connections"]),
    )
    return Group(*(line for part in parts for line in (part, "")))


def _broker_table(overview: dict[str, Any], alarms: str) -> Table:
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
