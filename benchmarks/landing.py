"""`python -m benchmarks.landing`: a stream of JSON in a Delta table, by either engine."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import typer
from pyspark import __version__ as spark_version

from benchmarks.harness import command
from benchmarks.harness.page import put_chapter
from benchmarks.spark import report
from benchmarks.spark.peers import start_with_management
from benchmarks.spark.rates import Way, in_turns
from penstock.client.amqp091.bulk_publisher import BulkPublisher
from penstock.core.basic_properties import (
    PERSISTENT,
    BasicProperties,
    encode_header,
    encode_route,
)
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark import open_session
from penstock_spark.landing.engines import LandingEngine, LocalEngine, SparkEngine
from penstock_spark.landing.lander import TableLander
from penstock_spark.landing.runner import LandingRunner
from penstock_spark.landing.settings import landing_settings
from penstock_spark.landing.source import StreamSource
from penstock_spark.stream_declaration import StreamDeclaration, ensure_stream
from penstock_spark.streams.endpoint import find_endpoint

_TITLE: Final = "Landing's benchmarks"
_METHOD: Final = (
    "Orders of about 130 bytes of JSON (five fields, one of them an array of objects) in a stream "
    "of Penstock are landed in a new Delta table on the local disk, from the first to the last, in "
    "batches of 200,000, as `penstock lake land --once` does. The schema is inferred. Each figure "
    "is the median of several rounds in which the ways alternate, after one that is not counted. "
    "The broker runs on the same machine. `reader` is the lander: this process and, with Spark "
    "(`{master}`), its driver and workers. *bytes* stores the bodies without decoding them. Of "
    "*1 % dead letters*, every hundredth message is not JSON."
)
_QUICK_ROWS: Final = 4_000
_CHANCE: Final = 100


def main(
    rows: Annotated[int, typer.Option(min=1000, help="In the stream.")] = 500_000,
    rounds: command.Rounds = 3,
    master: Annotated[str, typer.Option(help="Spark's.")] = "local[2]",
    quick: command.Quick = False,
    json_file: command.Json = None,
    markdown_file: command.Markdown = None,
) -> None:
    """Measure how fast a stream is landed in a table, and what that costs."""
    if quick:
        rows, rounds = _QUICK_ROWS, 1
    spark = open_session("benchmark", master)
    spark.sparkContext.setLogLevel("OFF")
    results = command.new_results("benchmarks.landing")
    with command.measuring() as announce, TemporaryDirectory(prefix="penstock-bench-") as folder:
        peer = start_with_management("penstock", Path(folder))
        url = f"amqp://guest:guest@127.0.0.1:{peer.port}/%2F"
        try:
            _fill(url, "orders", _orders(rows))
            _fill(url, "faulty", (b"!" if n % _CHANCE == 0 else body
                                  for n, body in enumerate(_orders(rows))))  # fmt: skip
            local = LocalEngine(find_endpoint(parse_amqp_url(url)))
            on_spark = SparkEngine(spark, url)
            tables = (f"{folder}/table-{number}" for number in itertools.count())

            def way(name: str, engine: LandingEngine, **options: Any) -> Way:
                return Way(name, rows, _landing(url, engine, tables, rows, options))

            ways = [
                way("local", local, stream="orders"),
                way("local, 1 % dead letters", local, stream="faulty"),
                way("local, bytes", local, stream="orders", format="bytes"),
                way("Spark", on_spark, stream="orders"),
                way("Spark, bytes", on_spark, stream="orders", format="bytes"),
            ]
            comparison = report.Comparison(
                "JSON from Penstock", in_turns(peer, ways, rounds, announce), "local, bytes"
            )
        finally:
            peer.close()
    spark.stop()
    results.versions |= {peer.name: peer.version, "Spark": spark_version}
    report.show([comparison])
    if json_file is not None:
        json_file.write_text(report.to_json(results, [comparison]))
    if markdown_file is not None:
        method = _METHOD.format(master=master)
        put_chapter(markdown_file, report.markdown(results, method, [comparison], _TITLE))


def _landing(
    url: str, engine: LandingEngine, tables: Iterator[str], rows: int, options: dict[str, Any]
) -> Callable[[], None]:
    def work() -> None:
        settings = landing_settings({"to": next(tables), **options}, "benchmark")
        source = StreamSource.of(url, settings)
        lander = TableLander(settings, source, lambda _: engine, max_batch=200_000)
        LandingRunner([lander], once=True).run()
        landed = lander.totals.rows + lander.totals.dead
        assert landed == rows, f"{landed} rows of {rows}"

    return work


def _orders(count: int) -> Iterator[bytes]:
    for number in range(count):
        order = {
            "id": number,
            "customer": f"customer-{number % 1000}",
            "amount": number % 10_000 / 100,
            "paid": number % 3 == 0,
            "lines": [{"sku": f"sku-{number % 77}", "count": number % 5}],
        }
        yield json.dumps(order).encode()


def _fill(url: str, stream: str, bodies: Iterator[bytes]) -> None:
    ensure_stream(url, StreamDeclaration(stream, "", ()))
    route = encode_route("", stream)
    with BulkPublisher(parse_amqp_url(url), mandatory=True, retry_seconds=60.0) as publisher:
        for body in bodies:
            header = encode_header(BasicProperties(delivery_mode=PERSISTENT), len(body))
            publisher.publish(route, header, body)
        publisher.flush()


if __name__ == "__main__":
    typer.run(main)
