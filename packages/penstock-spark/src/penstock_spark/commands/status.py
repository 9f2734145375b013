"""`penstock pipeline status`: state, progress and lag of flows, and the sizes of their tables."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.client_options import DEFAULT_URL, Url
from penstock.cli.options import ConfigFile, Data, Overrides, effective
from penstock.cli.table import new_table
from penstock_spark.commands.options import LakeOptions, LakeUrl, lake_location

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from penstock_spark.lake import StorageLocation
    from penstock_spark.status import FlowStatus

_STYLES: Final = {"running": "green", "waiting": "yellow", "failed": "bold red", "gone": "bold red"}


def status(
    flow: Annotated[
        str | None, typer.Option("--flow", metavar="NAME", help="Only this flow.")
    ] = None,
    url: Url = DEFAULT_URL,
    lake: LakeUrl = None,
    lake_options: LakeOptions = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Update until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.2, help="The interval of updates.")
    ] = 2.0,
) -> None:
    """Show the state, last batch, rate, lag and dead letters of flows, and the sizes of tables."""
    from rich.console import Console
    from rich.live import Live

    home = effective(file, pairs, data).settings.data
    location = lake_location(lake, lake_options)
    seen = _fetch_status(home, flow, url, location)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in seen], indent=2))
    elif not watch:
        Console(highlight=False).print(_render_status(seen))
    else:
        with Live(_render_status(seen), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(_render_status(_fetch_status(home, flow, url, location)), refresh=True)


def _fetch_status(
    home: Path, flow: str | None, url: str, lake: StorageLocation | None
) -> list[FlowStatus]:
    from penstock_spark.directory import FlowDirectory
    from penstock_spark.status import flow_status

    known = sorted(path.name.split(".")[0] for path in (home / "progress").glob("*.state.json"))
    return [
        flow_status(FlowDirectory(home, name, lake), url, time.time())
        for name in ([flow] if flow else known)
    ]


def _render_status(seen: list[FlowStatus]) -> RenderableType:
    from rich.console import Group

    if not seen:
        return "No flow has run here yet. Try: penstock pipeline run"
    reasons = [
        f"{each.flow}: {words}" for each in seen if (words := each.reason or each.lag.reason)
    ]
    damage = [
        f"{each.flow}: {each.damaged_files} files of bronze cannot be read; their messages are "
        "missing. The log names them. Restore them and replay."
        for each in seen
        if each.damaged_files
    ]
    return Group(_flows(seen), *reasons, *damage, "", _tables(seen))


def _flows(seen: list[FlowStatus]) -> Table:
    from rich.text import Text

    table = new_table(
        *("flow", "state", ">batch", ">rows", ">took", ">rows/s", ">lag", ">behind"),
        *(">dead letters", ">restarts"),
        no_wrap=True,
    )
    for each in seen:
        state = each.state or "never run"
        done = each.done
        idle = done is not None and time.time() - done.at > 60
        table.add_row(
            each.flow,
            Text(state, style=_STYLES.get(state, "")),
            f"{done.batch:,}" if done else "",
            f"{done.rows:,}" if done else "",
            f"{done.seconds:.1f} s" if done else "",
            f"{0 if idle else done.rate:,.0f}" if done else "",
            "?" if each.lag.messages is None else f"{each.lag.messages:,}",
            "?" if each.lag.seconds is None else _ago(each.lag.seconds),
            f"{each.dead_letters:,}",
            f"{each.restarts:,}",
        )
    return table


def _tables(seen: list[FlowStatus]) -> Table:
    table = new_table("table", ">rows", ">files", ">size", no_wrap=True)
    for each in seen:
        for name, size in each.tables.items():
            layer, _, short = name.partition(".")
            table.add_row(
                f"{layer}/{each.flow}/{short}",
                f"{size.rows:,}",
                f"{size.files:,}",
                _bytes(size.bytes),
            )
    return table


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
