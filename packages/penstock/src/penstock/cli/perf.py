"""`penstock perf`: loads a broker, and shows rates and latencies."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from penstock.cli.client_options import DEFAULT_URL, Url
from penstock.cli.options import AsJson
from penstock.cli.table import new_table
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.core.units import parse_bytes, parse_seconds
from penstock.perf.load_test import QUANTILES, LoadResult, LoadTest
from penstock.perf.workload import MIN_SIZE, LoadPattern, Workload

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")

HISTOGRAM_ROWS: Final = 16
BAR_WIDTH: Final = 40


def perf(
    url: Url = DEFAULT_URL,
    pattern: Annotated[
        str, typer.Option("--pattern", metavar="PATTERN", help="queue, topic or stream.")
    ] = "topic",
    publishers: Annotated[int, typer.Option("--publishers", "-x", min=0, help="Publishers.")] = 1,
    consumers: Annotated[int, typer.Option("--consumers", "-y", min=0, help="Consumers.")] = 1,
    size: Annotated[str, typer.Option("--size", "-s", metavar="SIZE", help="Of a body.")] = "16",
    rate: Annotated[
        float,
        typer.Option("--rate", "-r", min=0, help="Messages per second and publisher; 0: no limit."),
    ] = 0,
    duration: Annotated[
        str, typer.Option("--time", "-z", metavar="TIME", help="How long to publish, as 30s.")
    ] = "10s",
    window: Annotated[
        int, typer.Option("--window", "-c", min=1, help="Unconfirmed messages of a publisher.")
    ] = 500,
    prefetch: Annotated[
        int, typer.Option("--prefetch", "-q", min=1, help="Unacknowledged messages of a consumer.")
    ] = 500,
    qos: Annotated[int, typer.Option("--qos", min=0, max=2, help="Of MQTT.")] = 1,
    processes: Annotated[
        int, typer.Option("--processes", min=1, help="Processes for each kind of client.")
    ] = 1,
    address: Annotated[
        str, typer.Option("--address", help="Queue, topic or stream. [default: a new one]")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Load any broker with publishers and consumers, and show rates and a latency histogram.

    The latency of a message is from the time it was due to the time its consumer has it.

    `penstock perf --url mqtt://localhost --publishers 10 --consumers 10 --rate 100 --time 30s`
    """
    if pattern not in ("queue", "topic", "stream"):
        raise typer.BadParameter(f"--pattern {pattern}: should be queue, topic or stream")
    if publishers + consumers == 0:
        raise typer.BadParameter("--publishers 0 --consumers 0: nothing to do")
    protocol = protocol_of(url)
    if protocol in (BrokerProtocol.MQTT, BrokerProtocol.PADRES) and pattern != "topic":
        raise typer.BadParameter(f"--pattern {pattern}: {protocol.value} has topics only")
    kind: LoadPattern = pattern  # type: ignore[assignment]
    separator = "/" if protocol is BrokerProtocol.MQTT else "."
    workload = Workload(
        url=url,
        pattern=kind,
        address=address or f"perf{separator}{secrets.token_hex(4)}",
        size=max(_parsed("--size", size, parse_bytes), MIN_SIZE),
        rate=rate,
        seconds=_parsed("--time", duration, parse_seconds),
        window=window,
        prefetch=prefetch,
        qos=qos,
        temporary=not address,
    )
    test = LoadTest(workload, publishers, consumers, processes)
    if as_json:
        typer.echo(json.dumps(test.run().to_json(), indent=2))
        return
    _show(test)


def _parsed(option: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text}: {error}") from None


def _show(test: LoadTest) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        shown_at = 0.0

        def progress(result: LoadResult) -> None:
            nonlocal shown_at
            if time.monotonic() - shown_at >= 0.5:
                shown_at = time.monotonic()
                live.update(_summary(result), refresh=True)

        result = test.run(progress)
    console.print(_summary(result))
    if result.latency.total:
        console.print()
        console.print(_histogram(result))


def _summary(result: LoadResult) -> RenderableType:
    seconds = result.seconds or 1.0
    table = new_table("messages", ">total", ">per second")
    for name, count in (
        ("sent", result.sent),
        ("confirmed", result.confirmed),
        ("received", result.received),
    ):
        table.add_row(name, f"{count:,}", f"{count / seconds:,.0f}")
    for share in QUANTILES:
        label = f"latency p{share * 100:g}"
        table.add_row(label, _latency(result.latency.quantile(share)), "")
    table.add_row("latency max", _latency(result.latency.longest), "")
    return table


def _histogram(result: LoadResult) -> RenderableType:
    ranges = result.latency.ranges(HISTOGRAM_ROWS)
    most = max(count for _, _, count in ranges)
    table = new_table("latency up to", "", ">messages", ">share")
    for _, upper, count in ranges:
        bar = "█" * round(count / most * BAR_WIDTH) or ("▏" if count else "")
        share = f"{100 * count / result.latency.total:.1f} %"
        table.add_row(_latency(upper), bar, f"{count:,}", share)
    return table


def _latency(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds * 1e6:.0f} µs"
