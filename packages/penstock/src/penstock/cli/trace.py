"""`penstock trace`: the paths of selected messages through a running broker, and the firehose."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from penstock.cli.options import ConfigFile, ManagementUrl, effective
from penstock.client.management import call_management_api, management_url

app = typer.Typer(no_args_is_help=True, help="Trace messages through a running broker.")

Vhost = Annotated[str, typer.Option("--vhost", help="The virtual host.")]
Firehose = Annotated[
    bool,
    typer.Option("--firehose", help="Copies of all messages at the exchange amq.rabbitmq.trace."),
]


@app.command()
def on(
    key: Annotated[
        list[str] | None,
        typer.Option("--key", help="A pattern of routing keys, as of topic exchanges; repeatable."),
    ] = None,
    sample: Annotated[float, typer.Option(help="The share of messages to trace.")] = 1.0,
    limit: Annotated[int, typer.Option(help="Timelines to keep, the latest.")] = 1000,
    firehose: Firehose = False,
    vhost: Vhost = "/",
    url: ManagementUrl = None,
    file: ConfigFile = None,
) -> None:
    """Record the timelines of messages, or switch the firehose on."""
    if firehose:
        _call(file, url, f"/api/vhosts/{quote(vhost, safe='')}", {"tracing": True}, "PUT")
    else:
        rules = {"keys": key or [], "sample": sample, "limit": limit}
        _call(file, url, _path(vhost), rules, "PUT")


@app.command()
def off(
    firehose: Firehose = False,
    vhost: Vhost = "/",
    url: ManagementUrl = None,
    file: ConfigFile = None,
) -> None:
    """Stop recording, or switch the firehose off. Recorded timelines stay."""
    if firehose:
        _call(file, url, f"/api/vhosts/{quote(vhost, safe='')}", {"tracing": False}, "PUT")
    else:
        _call(file, url, _path(vhost), None, "DELETE")


@app.command("list")
def list_timelines(vhost: Vhost = "/", url: ManagementUrl = None, file: ConfigFile = None) -> None:
    """The recorded timelines, the latest first."""
    for row in _call(file, url, _path(vhost))["timelines"]:
        where = f"{row['exchange'] or '(default)'} {row['routing_key']}"
        typer.echo(f"{row['trace_id']}  {_clock(row['started'])}  {row['last_event']:13}  {where}")


@app.command()
def show(
    trace_id: Annotated[str, typer.Argument(metavar="ID", help="From `penstock trace list`.")],
    vhost: Vhost = "/",
    url: ManagementUrl = None,
    file: ConfigFile = None,
) -> None:
    """The timeline of a message."""
    timeline = _call(file, url, f"{_path(vhost)}/{quote(trace_id, safe='')}")
    started = timeline["started"]
    for event in timeline["events"]:
        facts = {key: each for key, each in event.items() if key not in ("time", "event")}
        shown = "  ".join(f"{key}={_fact(each)}" for key, each in facts.items() if each is not None)
        after = (event["time"] - started) * 1000
        typer.echo(f"{_clock(event['time'])}  {after:+10.3f} ms  {event['event']:13}  {shown}")


def _fact(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3]


def _path(vhost: str) -> str:
    return f"/api/message-traces/{quote(vhost, safe='')}"


def _call(file: Path | None, url: str | None, path: str, body: Any = None, method: str = "") -> Any:
    address = management_url(effective(file).settings.broker, url)
    return call_management_api(address, path, body, method)
