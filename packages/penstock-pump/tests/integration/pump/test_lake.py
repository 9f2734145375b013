"""What happened to this file: posts and reports over the broker into the lake, and asked for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock_pump.components import post, sarra, subscribe, winnow
from penstock_pump.components.message_archive import archive_exchanges
from penstock_pump.lake.flow import NAME, PumpFlow, summarise
from penstock_pump.lake.trace import plot_summary, trace
from penstock_spark.directory import FlowDirectory
from penstock_spark.runner import FlowRunner, SourceOptions
from tests.cli.command import environment
from tests.fixtures import running as started
from tests.integration.pump.running import make_tree, running, settings, tree, until
from tests.peers import Penstock
from tests.pump.servers import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FILES = 5  # and a link and an empty one


@dataclass(frozen=True)
class Kept:
    """A data directory with a chain's announcements in its lake."""

    data: Path

    @property
    def place(self) -> FlowDirectory:
        return FlowDirectory(self.data, NAME)


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = tmp_path_factory.mktemp("kept")
    with started(Penstock(tmp_path_factory.mktemp("broker"))) as broker:
        asyncio.run(_chain(broker.url, folder))
        place = FlowDirectory(folder, NAME)
        FlowRunner(
            spark, PumpFlow(place.lake.root), place, SourceOptions(broker.url)
        ).run_available_now()
        yield Kept(folder)


async def _chain(url: str, folder: Path) -> None:
    """A tree posted twice, fetched by sarra, winnowed, and fetched by a subscriber that reports."""
    there, pump, here = folder / "there", folder / "pump", folder / "here"
    pump.mkdir()
    make_tree(there, FILES)
    await archive_exchanges(settings("shovel", url, folder / "k"), ["xs", "xa", "xw", "xr"])
    with serving(there) as first, serving(pump) as second:
        pumps = settings(
            "sarra", url, folder / "a", exchange="xs", post_exchange="xa", directory=str(pump),
            post_base_url=second.url, post_base_dir=pump, report_back=True, report_exchange="xr",
        )  # fmt: skip
        winnows = settings(
            "winnow", url, folder / "w", exchange="xa", post_exchange="xw", report_back=True,
            report_exchange="xr",
        )  # fmt: skip
        fetches = settings(
            "subscribe", url, folder / "s", exchange="xw", directory=str(here), mirror=True,
            report_exchange="xr",
        )  # fmt: skip
        posts = settings(
            "post", url, folder / "p", post_exchange="xs", post_base_url=first.url,
            post_base_dir=there, path=[there],
        )  # fmt: skip
        async with running(subscribe, fetches) as control, running(winnow, winnows):
            async with running(sarra, pumps) as pumping:
                await post(posts)
                await until(lambda: tree(here) == tree(there))
                await until(lambda: control.counters.codes.total() == FILES + 2)
                await post(posts)
                await until(lambda: pumping.counters.codes[304] == FILES + 2)


def test_a_file_is_traced_hop_by_hop(kept: Kept) -> None:
    hops = trace(kept.data, "file 1#.txt")
    assert [(hop.kind, hop.exchange) for hop in hops if hop.kind == "post"] == [
        ("post", "xs"),
        ("post", "xa"),
        ("post", "xw"),
        ("post", "xs"),
    ]
    reported = [(hop.code, hop.message) for hop in hops if hop.kind == "report"]
    assert sorted(reported) == [
        (201, "Downloaded"),
        (201, "Downloaded"),
        (201, "Published"),
        (304, "the same file exists"),
    ]
    first = next(hop for hop in hops if hop.exchange == "xw")
    assert first.after > 0
    assert first.relpath == "d1/sub dir/file 1#.txt"


def test_a_file_is_asked_for_by_name_by_path_or_by_pattern(kept: Kept) -> None:
    way = trace(kept.data, "file 1#.txt")
    assert trace(kept.data, "sub dir/file 1#.txt") == way
    assert trace(kept.data, "d1/sub dir/file 1#.txt") == way
    assert trace(kept.data, "file 1*") == way
    assert trace(kept.data, "1#.txt") == []


def test_the_command_shows_the_way_and_says_when_there_is_none(kept: Kept) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock", "pump", "trace", "--data", kept.data, *arguments],
            capture_output=True,
            text=True,
            env=environment(),
        )

    shown = command("empty")
    assert shown.returncode == 0, shown.stderr
    assert "xw" in shown.stdout
    assert "201" in shown.stdout
    lines = [json.loads(line) for line in command("empty", "--json").stdout.splitlines()]
    assert [line["exchange"] for line in lines if line["kind"] == "post"][:2] == ["xs", "xa"]
    nobody = command("nobody")
    assert nobody.returncode != 0
    assert "nobody has announced 'nobody'" in nobody.stderr


def test_a_day_is_summed_up_as_a_table_and_a_picture(
    kept: Kept, spark: SparkSession, tmp_path: Path
) -> None:
    lake = kept.place.lake
    today = datetime.now(UTC).date()
    rows = {row.exchange: row.asDict() for row in summarise(spark, lake, today).collect()}
    summarise(spark, lake, today)
    assert {name: row["posts"] for name, row in rows.items()} == {
        "xs": 2 * (FILES + 2),
        "xa": FILES + 2,
        "xw": FILES + 2,
        "xr": 0,
    }
    assert (rows["xs"]["duplicates"], rows["xw"]["duplicates"]) == (FILES + 2, 0)
    assert rows["xs"]["files"] == FILES + 2
    assert (rows["xr"]["done"], rows["xr"]["unchanged"]) == (3 * (FILES + 2), FILES + 2)
    assert 0 <= rows["xs"]["latency_p50"] <= rows["xw"]["latency_p95"]
    size = sum(path.stat().st_size for path in (kept.data / "there").rglob("file*"))
    assert rows["xa"]["bytes"] == size
    # Made again, it is there once.
    assert lake.read(spark, "gold.summary").count() == 4

    picture = tmp_path / "day.svg"
    plot_summary(list(rows.values()), picture)
    assert "<svg" in picture.read_text()
