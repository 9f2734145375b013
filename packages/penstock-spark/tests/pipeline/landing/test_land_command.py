"""`penstock lake`, with real brokers, an object store, Spark, and SIGKILL."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import paho.mqtt.client as paho
import polars as pl
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt.enums import CallbackAPIVersion
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from penstock.core.errors import PenstockError
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.commands.lake import app
from penstock_spark.landing.engines import LandingEngine, LocalEngine, SparkEngine
from penstock_spark.landing.lander import TableLander
from penstock_spark.landing.settings import landing_settings
from penstock_spark.landing.source import StreamSource
from penstock_spark.streams.endpoint import find_endpoint
from tests.peers import Broker, Penstock
from tests.pipeline.cloud_stores import CloudStore
from tests.pipeline.given import declare, publish
from tests.pipeline.landing.memory_streams import dead, land_all, rows
from tests.pipeline.landing.test_formats import AVRO, ORDER, datum, descriptors
from tests.pipeline.landing.test_lander import some_bodies
from tests.pipeline.object_store import ObjectStore


def run(*arguments: str | Path) -> str:
    """The output of `penstock lake`."""
    result = invoke(*map(str, arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def invoke(*arguments: str) -> Result:
    handlers = logging.getLogger().handlers[:]
    try:
        return CliRunner().invoke(app, arguments)
    finally:
        logging.getLogger().handlers[:] = handlers


def land(url: str, *arguments: str | Path) -> str:
    return run("land", "--url", url, "--engine", "local", "--once", *arguments)


def test_a_stream_is_landed_and_queried(penstock: Penstock, name: str, tmp_path: Path) -> None:
    declare(penstock.url, name)
    orders = [{"id": n, "customer": f"c{n % 3}", "amount": n / 4} for n in range(300)]
    publish(penstock.url, name, [*(json.dumps(each).encode() for each in orders), b"oops"])
    said = land(penstock.url, "--stream", name, "--to", tmp_path / "orders", "--partition", "day")
    assert said == f"{tmp_path}/orders: 300 rows and 1 dead letters in 1 batches\n"
    again = land(penstock.url, "--stream", name, "--to", tmp_path / "orders", "--partition", "day")
    assert ": 0 rows" in again

    lake = ("--lake", tmp_path)
    listed = json.loads(run("tables", "--json", *lake))
    assert [(each["name"], each["rows"]) for each in listed] == [
        ("orders", 300),
        ("orders_dead_letters", 1),
    ]
    query = "SELECT customer, count(*) AS n FROM orders GROUP BY customer ORDER BY customer"
    assert run("sql", query, *lake).splitlines()[1].split() == ["c0", "100"]
    by_url = f"SELECT sum(amount) AS s FROM '{tmp_path}/orders'"
    assert json.loads(run("sql", "--json", by_url, *lake)) == {"s": sum(n / 4 for n in range(300))}
    joined = "SELECT reason FROM orders_dead_letters d LEFT JOIN orders o USING (_offset)"
    assert "invalid_json" in run("sql", joined, *lake)
    shown = json.loads(run("history", "orders", "--json", *lake))
    assert (shown[0]["operation"], shown[0]["stream"], shown[0]["offsets"]) == (
        "WRITE",
        name,
        "0 to 300",
    )
    assert "as 0: 0 rows" in run("restore", "orders", "0", *lake)
    assert "as 1: 300 rows" in run("restore", tmp_path / "orders", "1")
    assert "orders: 0 files → 0" in run("optimize", "orders", *lake)
    assert "0 files deleted" in run("vacuum", "orders", *lake)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sql", "SELECT * FROM nothing"), "has these tables: none"),
        (("sql", "SELEC"), "syntax error"),
        (("history", "nothing"), "has no table 'nothing'"),
        (("history", "/no/such/table"), "no Delta table there"),
        (("land", "--stream", "x"), "--to is missing"),
        (("land", "--to", "/tmp/x"), "stream is missing"),
        (("land", "--to", "/tmp/x", "--stream", "x", "--column", "y"), "should be NAME=VALUE"),
        (("land", "--config", "x.toml", "--stream", "x"), "it is set in the file"),
        (("land", "--config", "x.toml", "--format", "csv"), "it is set in the file"),
        (("land", "--config", "x.toml", "--start", "latest"), "it is set in the file"),
        (("land", "--config", "no-such.toml"), "No such file"),
    ],
)
def test_mistakes_are_explained(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    lake = () if arguments[0] == "land" else ("--lake", str(tmp_path))
    result = invoke(*arguments, *lake)
    assert result.exit_code != 0
    said = str(result.exception) if isinstance(result.exception, PenstockError) else result.output
    assert words in " ".join(said.replace("│", " ").split())


def test_a_file_describes_many_tables(penstock: Penstock, name: str, tmp_path: Path) -> None:
    for each in ("a", "b"):
        declare(penstock.url, f"{name}.{each}")
        publish(penstock.url, f"{name}.{each}", [b"1,x"] * 5)
    config = tmp_path / "land.toml"
    config.write_text(
        f"""
        url = "{penstock.url}"
        lake = "{tmp_path}/lake"
        [tables.numbers]
        stream = ["{name}.a", "{name}.b"]
        format = "csv"
        schema = "n BIGINT, s STRING"
        columns = {{ key = "key" }}
        [tables.raw]
        stream = "{name}.*"
        format = "bytes"
        """
    )
    land("amqp://guest:guest@127.0.0.1:5672/", "--config", config)
    numbers = pl.read_delta(str(tmp_path / "lake/numbers"))
    assert numbers.group_by("_stream", "key", "n", "s").len().sort("_stream").rows() == [
        (f"{name}.{each}", f"{name}.{each}", 1, "x", 5) for each in ("a", "b")
    ]
    assert pl.read_delta(str(tmp_path / "lake/raw"))["body"].to_list() == [b"1,x"] * 10


def test_streams_of_either_broker_are_landed(broker: Broker, name: str, tmp_path: Path) -> None:
    declare(broker.url, name)
    publish(broker.url, name, [b'{"n":%d}' % n for n in range(500)])
    land(broker.url, "--stream", name, "--to", tmp_path / "t", "--max-batch", "200")
    landed = pl.read_delta(str(tmp_path / "t")).sort("_offset")
    assert landed["n"].to_list() == list(range(500))
    assert landed["_timestamp"].null_count() == 0


def test_an_mqtt_topic_filter_is_landed(penstock: Penstock, name: str, tmp_path: Path) -> None:
    filter_ = f"{name}/+/report"
    arguments = ("--mqtt", filter_, "--to", tmp_path / "t", "--column", "sensor=topic:2")
    land(penstock.url, *arguments)  # declares the stream
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.username_pw_set("guest", "guest")
    client.connect("127.0.0.1", penstock.mqtt_port)
    client.loop_start()
    for n in range(10):
        sent = client.publish(f"{name}/s{n % 2}/report", json.dumps({"t": n}), qos=1)
        sent.wait_for_publish(30)
    client.publish(f"{name}/s0/status", "{}", qos=1).wait_for_publish(30)
    client.disconnect()
    client.loop_stop()
    land(penstock.url, *arguments)
    landed = pl.read_delta(str(tmp_path / "t")).sort("_offset")
    assert landed.select("sensor", "t").rows() == [(f"s{n % 2}", n) for n in range(10)]


@pytest.mark.parametrize("store", ["s3", "azure", "azurite", "google"])
def test_a_table_in_an_object_store(
    penstock: Penstock, name: str, store: str, request: pytest.FixtureRequest
) -> None:
    found: ObjectStore | CloudStore = request.getfixturevalue(store)
    declare(penstock.url, name)
    publish(penstock.url, name, [b'{"n":%d}' % n for n in range(50)] + [b"{"])
    location = found.location(name)
    options = [f"--storage={key}={value}" for key, value in location.options]
    land(penstock.url, "--stream", name, "--to", location.url, "--max-batch", "20", *options)
    landed = DeltaTable(location.url, storage_options=location.storage_options)
    assert sorted(landed.to_pyarrow_table()["n"].to_pylist()) == list(range(50))
    lake = location.url.rpartition("/")[0]
    listed = json.loads(run("tables", "--json", "--lake", lake, *options))
    sizes = {each["name"]: each["rows"] for each in listed}
    assert (sizes[name], sizes[f"{name}_dead_letters"]) == (50, 1)
    query = f"SELECT sum(n) AS s FROM '{location.url}'"
    assert json.loads(run("sql", "--json", query, "--lake", lake, *options)) == {"s": 1225}


def test_a_killed_lander_loses_and_repeats_nothing(
    penstock: Penstock, name: str, tmp_path: Path
) -> None:
    """Continuous landing, killed by SIGKILL at random times while messages arrive."""
    declare(penstock.url, name)
    count, done = 3000, threading.Event()

    def produce() -> None:
        for start in range(0, count, 100):
            publish(
                penstock.url,
                name,
                [b'{"n":%d}' % n if n % 7 else b"!" for n in range(start, start + 100)],
            )
            time.sleep(0.02)
        done.set()

    producer = threading.Thread(target=produce)
    producer.start()
    chance = random.Random(7)
    command = [
        sys.executable, "-m", "penstock", "lake", "land", "--url", penstock.url, "--stream", name,
        "--to", str(tmp_path / "t"), "--engine", "local", "--every", "0.1", "--max-batch", "150",
    ]  # fmt: skip
    for _ in range(4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.8, 1.8))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    producer.join()
    land(penstock.url, "--stream", name, "--to", tmp_path / "t")
    landed = pl.read_delta(str(tmp_path / "t"))["n"].to_list()
    letters = pl.read_delta(str(tmp_path / "t_dead_letters"))["_offset"].to_list()
    assert sorted(landed) == [n for n in range(count) if n % 7]
    assert sorted(letters) == [n for n in range(count) if not n % 7]


# Spark


#: Of each format: its options, whose schema is the content of a file, and bodies; some do not fit.
FORMATS: dict[str, tuple[dict[str, str | bytes], st.SearchStrategy[bytes]]] = {
    "json": ({}, some_bodies),
    "csv": (
        {"schema": b"id BIGINT, note STRING"},
        st.lists(st.text('0123456789,"\n', max_size=8), max_size=3).map(
            lambda lines: "\n".join(lines).encode()
        ),
    ),
    "avro": (
        {"schema": json.dumps(AVRO).encode()},
        st.integers(-9, 9).map(lambda n: datum(ORDER | {"id": n})) | st.binary(max_size=60),
    ),
    "protobuf": (
        {"schema": descriptors(), "message": "shop.Order"},
        st.integers(0, 99).map(lambda n: b"\x08" + bytes([n])) | st.binary(max_size=60),
    ),
    "text": ({}, st.text().map(str.encode) | st.binary()),
    "bytes": ({}, st.binary()),
}


@pytest.mark.parametrize("form", FORMATS)
def test_both_engines_make_the_same_tables(
    spark: SparkSession, penstock: Penstock, name: str, tmp_path: Path, form: str
) -> None:
    """The bodies of the property tests, through Spark and through this process."""
    given_options, bodies = FORMATS[form]
    options = {"format": form, **given_options}
    if isinstance(schema := options.get("schema"), bytes):
        (tmp_path / "schema").write_bytes(schema)
        options["schema"] = str(tmp_path / "schema")
    examples: list[bytes] = []

    @settings(max_examples=150 if form == "json" else 40, database=None)
    @given(bodies)
    def collect(body: bytes) -> None:
        examples.append(body)

    collect()
    for each in (name, f"{name}.2"):
        declare(penstock.url, each)
    publish(penstock.url, name, examples)
    publish(penstock.url, f"{name}.2", examples[:20])

    def lander(to: str, engine: LandingEngine) -> TableLander:
        streams = {"stream": [name, f"{name}.2"], "partition": "day"}
        settings_ = landing_settings({"to": str(tmp_path / to), **streams, **options}, "test")
        source = StreamSource.of(penstock.url, settings_)
        return TableLander(settings_, source, lambda source: engine, max_batch=1000)

    endpoint = find_endpoint(parse_amqp_url(penstock.url))
    local = land_all(lander("local", LocalEngine(endpoint)))
    on_spark = land_all(lander("spark", SparkEngine(spark, penstock.url)))
    assert rows(local) == rows(on_spark)
    wanted = ("_stream", "_offset", "reason", "detail", "body")
    assert dead(local, *wanted) == dead(on_spark, *wanted)
    assert local.table.schema == on_spark.table.schema
    landed = [*rows(local, "_stream", "_offset"), *dead(local, "_stream", "_offset")]
    if form != "csv":  # where a message may have no record, or many
        assert len(landed) == len(set(landed)) == len(examples) + 20
