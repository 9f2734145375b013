"""`python -m benchmarks.spark`: streams into Spark, beside Parquet and beside pika."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.peers import available
from benchmarks.spark.fill import BODY_BYTES, fill
from benchmarks.spark.peers import Peer, start_with_management
from benchmarks.spark.rates import Rate, batch, consume, follow, measure, take
from penstock.pipeline import open_session

_METHOD = (
    f"Reports of {BODY_BYTES} bytes, persistent, from 1000 sensors by a topic exchange; read whole "
    "(all nine columns, unless said) into Spark's `noop` sink in a warm session, the broker on the "
    "same machine. Medians over rounds; pika's figures are for its blocking connection alone, "
    "without Spark, with batched acknowledgements."
)


def main(
    rows: Annotated[int, typer.Option(min=1000, help="In Penstock's stream.")] = 1_000_000,
    rabbitmq_rows: Annotated[int, typer.Option(min=1000, help="In RabbitMQ's streams.")] = 400_000,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds.")] = 3,
    master: Annotated[str, typer.Option(help="Spark's.")] = "local[2]",
    peers: Annotated[str, typer.Option(help="Comma-separated.")] = "penstock,rabbitmq",
    markdown: Annotated[Path | None, typer.Option(help="Write the tables there.")] = None,
) -> None:
    """Measure how fast streams are read into Spark."""
    spark = open_session("benchmark", master)
    spark.sparkContext.setLogLevel("OFF")
    tables: dict[str, list[Rate]] = {}
    for name in peers.split(","):
        if name != "penstock" and not available(name):
            Console(stderr=True).print(f"{name} is not installed: left out")
            continue
        with tempfile.TemporaryDirectory() as folder:
            peer = start_with_management(name, Path(folder))
            try:
                figures = _penstock if name == "penstock" else _rabbitmq
                count = rows if name == "penstock" else rabbitmq_rows
                title = f"{peer.name} {peer.version}"
                tables[title] = list(figures(spark, peer, Path(folder), count, rounds))
            finally:
                peer.close()
    spark.stop()
    for title, rates in tables.items():
        _show(title, rates)
    if markdown is not None:
        markdown.write_text(_page(tables, master))


def _penstock(
    spark: SparkSession, peer: Peer, folder: Path, rows: int, rounds: int
) -> Iterator[Rate]:
    url, streams = _url(peer), ["reports"]
    fill(url, streams, rows)
    frame = batch(spark, url, streams)
    yield measure("a batch", rows, rounds, lambda: take(frame))
    two = batch(spark, url, streams, "offset BIGINT, body BINARY")
    yield measure("a batch of two columns", rows, rounds, lambda: take(two))
    yield measure("a query", rows, rounds, lambda: follow(spark, url, streams, folder))
    parquet = str(folder / "parquet")
    frame.write.parquet(parquet)
    same = spark.read.parquet(parquet)
    yield measure("the same from Parquet", rows, rounds, lambda: take(same))


def _rabbitmq(
    spark: SparkSession, peer: Peer, folder: Path, rows: int, rounds: int
) -> Iterator[Rate]:
    url = _url(peer)
    for count in (1, 2, 4):
        streams = [f"reports-{count}-{number}" for number in range(count)]
        fill(url, streams, rows // count)
        frame = batch(spark, url, streams)
        total = rows // count * count
        what = f"a batch from {count} stream{'s' if count > 1 else ''}"
        yield measure(what, total, rounds, partial(take, frame))
        if count == 1:
            alone = partial(consume, url, streams[0], rows)
            yield measure("pika, one stream", rows, rounds, alone)


def _url(peer: Peer) -> str:
    return f"amqp://guest:guest@127.0.0.1:{peer.port}/%2F"


def _cells(rates: list[Rate]) -> Iterator[tuple[str, ...]]:
    for rate in rates:
        ratio = rate.median / rates[0].median
        yield (
            rate.what,
            f"{rate.rows:,}",
            f"{rate.median:,.0f}",
            f"{rate.best:,.0f}",
            f"{ratio:.2f}",
        )


_HEADS = ("what", "rows", "rows/s", "best", "of the first")


def _show(title: str, rates: list[Rate]) -> None:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for head in _HEADS:
        table.add_column(head, justify="left" if head == "what" else "right", no_wrap=True)
    for row in _cells(rates):
        table.add_row(*row)
    Console().print(table)


def _page(tables: dict[str, list[Rate]], master: str) -> str:
    command = shlex.join(["python", "-m", "benchmarks.spark", *sys.argv[1:]])
    lines = ["# Streams into Spark", "", "```", command, "```", ""]
    lines += [f"{datetime.now(UTC):%Y-%m-%d} · `{master}`. {_METHOD}"]
    for title, rates in tables.items():
        lines += ["", f"## {title}", "", f"| {' | '.join(_HEADS)} |", "|---|---:|---:|---:|---:|"]
        lines += [f"| {' | '.join(row)} |" for row in _cells(rates)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    typer.run(main)
