"""`python -m benchmarks.spark`: streams into Spark, beside Parquet and beside pika."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer
from pyspark import __version__ as spark_version
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.harness import command
from benchmarks.harness.page import put_chapter
from benchmarks.peers import available
from benchmarks.spark import report
from benchmarks.spark.fill import BODY_BYTES, fill, reports_a_chunk
from benchmarks.spark.floor import FloorSource, store
from benchmarks.spark.peers import Peer, start_with_management
from benchmarks.spark.rates import Way, in_turns
from benchmarks.spark.ways import batch, consume, follow, follow_frame, take
from penstock_spark import open_session

_METHOD: Final = (
    f"Reports of {BODY_BYTES} bytes, persistent, from 1,000 sensors through a topic exchange are "
    "read from first to last into Spark's `noop` sink on `{master}` in a warm session, with all "
    "nine columns unless stated otherwise. Each figure is the median of several rounds in which "
    "the ways alternate. The broker runs on the same machine and uses part of the cores. CPU "
    "seconds are the user and system time of the broker's processes and of the reader's (Spark's "
    "driver and workers, or pika): they show what more cores would give. pika is its blocking "
    "connection with batched acknowledgements, in this process, without Spark. Parquet is the "
    "same rows with the same columns, written by Spark. Prebuilt Arrow is the floor that Spark "
    "sets: a Python source that returns the same rows as record batches from a mapped file, with "
    "no broker and nothing to decode. One stream is read in ranges by as many "
    "tasks as there are cores, so several streams gain little on one machine. With one task per "
    "stream (`minPartitions`) the table shows the gain of another stream while there are cores "
    "for it and for the broker. RabbitMQ collects into a chunk what arrived while it wrote the "
    "previous one, so the chunk size varies. The cost of a chunk hardly depends on its size, so "
    "the rates by chunks vary with it."
)
#: Enough to show that all works, too little for a figure.
_QUICK_ROWS: Final = 4_000
_STREAMS: Final = (1, 2, 4)


def main(
    rows: Annotated[int, typer.Option(min=1000, help="In Penstock's stream.")] = 1_000_000,
    rabbitmq_rows: Annotated[int, typer.Option(min=1000, help="In RabbitMQ's streams.")] = 400_000,
    rounds: command.Rounds = 3,
    master: Annotated[str, typer.Option(help="Spark's.")] = "local[2]",
    peers: Annotated[str, typer.Option(help="Comma-separated.")] = "penstock,rabbitmq",
    quick: command.Quick = False,
    json_file: command.Json = None,
    markdown_file: command.Markdown = None,
) -> None:
    """Measure how fast streams are read into Spark, and what that costs."""
    chosen = command.names(peers, list(_COMPARED), "--peers")
    if quick:
        rows, rabbitmq_rows, rounds = _QUICK_ROWS, _QUICK_ROWS, 1
    spark = open_session("benchmark", master)
    spark.sparkContext.setLogLevel("OFF")
    results = command.new_results("benchmarks.spark")
    comparisons = []
    with command.measuring() as announce:
        for name in chosen:
            if not available(name):
                Console(stderr=True).print(f"{name} is not installed: left out")
                continue
            count = rows if name == "penstock" else rabbitmq_rows
            with TemporaryDirectory(prefix="penstock-bench-") as folder:
                peer = start_with_management(name, Path(folder))
                try:
                    for each in _COMPARED[name](spark, peer, Path(folder), count):
                        rates = in_turns(peer, each.ways, rounds, announce)
                        comparisons.append(
                            report.Comparison(each.title, rates, each.yardstick, each.note)
                        )
                finally:
                    peer.close()
            results.versions[peer.name] = peer.version
    spark.stop()
    results.versions["Spark"] = spark_version
    report.show(comparisons)
    if json_file is not None:
        json_file.write_text(report.to_json(results, comparisons))
    if markdown_file is not None:
        method = _METHOD.format(master=master)
        put_chapter(markdown_file, report.markdown(results, method, comparisons))


@dataclass(frozen=True, slots=True)
class _Turns:
    """Ways to read the same, which take turns, and the one that the others are measured by."""

    title: str
    ways: Sequence[Way]
    yardstick: str
    note: str = ""


def _penstock(spark: SparkSession, peer: Peer, folder: Path, rows: int) -> Iterator[_Turns]:
    url, streams = _url(peer), ["reports"]
    fill(url, {"reports": rows})
    frame = batch(spark, url, streams)
    two = batch(spark, url, streams, "offset BIGINT, body BINARY")
    parquet = str(folder / "parquet")
    frame.write.parquet(parquet)
    same = spark.read.parquet(parquet)
    found = same.count()
    assert found == rows, f"{found} rows of {rows}"
    prebuilt = folder / "prebuilt.arrow"
    store(frame, prebuilt)
    spark.dataSource.register(FloorSource)
    floor = spark.read.format("floor").load(str(prebuilt))
    live = spark.readStream.format("floor").load(str(prebuilt))
    ways = [
        Way("a batch", rows, partial(take, frame)),
        Way("a batch of two columns", rows, partial(take, two)),
        Way("a query", rows, lambda: follow(spark, url, streams, folder)),
        Way("prebuilt Arrow, a batch", rows, partial(take, floor)),
        Way("prebuilt Arrow, a query", rows, partial(follow_frame, live, folder)),
        Way("Parquet", rows, partial(take, same)),
    ]
    yield _Turns("From Penstock", ways, "Parquet")


def _rabbitmq(spark: SparkSession, peer: Peer, folder: Path, rows: int) -> Iterator[_Turns]:
    url = _url(peer)
    streams = {
        count: {f"reports-{count}-{number}": rows // count for number in range(count)}
        for count in _STREAMS
    }
    fill(url, {name: size for each in streams.values() for name, size in each.items()})
    lying = (
        f"{reports_a_chunk(url, peer.stream_port, each):.0f} in {_streams(count)}"
        for count, each in streams.items()
    )
    note = f"Reports that lie in a chunk, on average: {', '.join(lying)}."
    kinds = ((peer.stream_port, "chunks"), (0, "AMQP"))

    def way(count: int, port: int, name: str, tasks: int | None) -> Way:
        frame = batch(spark, url, list(streams[count]), stream_port=port, tasks=tasks)
        found, total = frame.count(), rows // count * count
        assert found == total, f"{found} rows of {total}"
        return Way(name, total, partial(take, frame))

    ways = [
        way(count, port, f"{kind}, {_streams(count)}", None)
        for count in _STREAMS
        for port, kind in kinds
    ]
    alone = Way("pika", rows, partial(consume, url, next(iter(streams[1])), rows))
    yield _Turns("From RabbitMQ", [*ways, alone], "pika", note)
    for port, kind in kinds:
        ways = [way(count, port, _streams(count), count) for count in _STREAMS]
        yield _Turns(f"From RabbitMQ, {kind}, a task for each stream", ways, _streams(1))


def _streams(count: int) -> str:
    return f"{count} stream{'s' if count > 1 else ''}"


_Comparing = Callable[[SparkSession, Peer, Path, int], Iterator[_Turns]]
_COMPARED: Final[dict[str, _Comparing]] = {"penstock": _penstock, "rabbitmq": _rabbitmq}


def _url(peer: Peer) -> str:
    return f"amqp://guest:guest@127.0.0.1:{peer.port}/%2F"


if __name__ == "__main__":
    typer.run(main)
