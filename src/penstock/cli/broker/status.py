"""`penstock broker status`: what a running broker does right now."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from penstock.cli.management import ManagementUrl, ask, management_url
from penstock.cli.options import ConfigFile, Overrides, effective


def status(
    url: ManagementUrl = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show what a running broker does: clients, queues, messages."""
    address = management_url(effective(file, pairs).settings.broker, url)
    overview = ask(address, "/api/overview")
    queues = ask(address, "/api/queues")
    if as_json:
        typer.echo(json.dumps({"overview": overview, "queues": queues}, indent=2))
        return
    _print(overview, queues)


def _print(overview: dict[str, Any], queues: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    objects = overview.get("object_totals", {})
    totals = overview.get("queue_totals", {})
    name = overview.get("product_name", "broker")
    version = overview.get("product_version", overview.get("rabbitmq_version", ""))
    console.print(Text(f"{name} {version} · {overview.get('cluster_name', '')}", style="bold"))
    console.print(
        f"{objects.get('connections', 0)} connections, {objects.get('channels', 0)} channels, "
        f"{objects.get('consumers', 0)} consumers, {objects.get('queues', 0)} queues; "
        f"{totals.get('messages_ready', 0)} messages ready, "
        f"{totals.get('messages_unacknowledged', 0)} unacknowledged",
        highlight=False,
    )
    if not queues:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("vhost", "queue", "type"):
        table.add_column(heading, overflow="fold")
    for heading in ("ready", "unacknowledged", "consumers"):
        table.add_column(heading, justify="right")
    for queue in queues:
        table.add_row(
            Text(str(queue.get("vhost", ""))),
            Text(str(queue.get("name", ""))),
            str(queue.get("type", "classic")),
            str(queue.get("messages_ready", 0)),
            str(queue.get("messages_unacknowledged", 0)),
            str(queue.get("consumers", 0)),
        )
    console.print(table)
