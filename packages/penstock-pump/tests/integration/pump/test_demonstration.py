"""`penstock pump demo`: what lands in the inbox comes out in the mirror, and leaves it again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from penstock_pump.demo import STATIONS, PumpDemo, observation
from tests.cli.command import Running, environment, run
from tests.integration.pump.running import until
from tests.peers import Penstock


async def test_what_lands_in_the_inbox_comes_out_in_the_mirror(
    penstock: Penstock, tmp_path: Path
) -> None:
    home = tmp_path / "data" / "pump"
    inbox, mirror = home / "inbox", home / "mirror"
    told = ("--data", tmp_path / "data", "--url", penstock.url, "--every", "0.1s")
    with Running(tmp_path, "pump", "demo", *told) as up:
        assert up.addresses == [inbox.as_uri()]
        (inbox / "a letter.txt").write_text("carry me")
        await until(lambda: (mirror / "a letter.txt").is_file())
        assert (mirror / "a letter.txt").read_text() == "carry me"
        await until(lambda: {path.name for path in mirror.glob("*/*")} == set(STATIONS))
        table = run("pump", "status", env=environment(PENSTOCK_DATA=str(tmp_path / "data")))
        assert "subscribe/demo" in table.stdout
        assert "watch/demo" in table.stdout
        assert "stopped" not in table.stdout
        stream = ("--data", tmp_path / "data", "--url", penstock.http_url, "--json")
        traced = run("pump", "trace", "a letter.txt", *stream)
        kinds = [json.loads(line)["kind"] for line in traced.stdout.splitlines()]
        assert sorted(set(kinds)) == ["post", "report"], traced
        (inbox / "a letter.txt").unlink()
        await until(lambda: not (mirror / "a letter.txt").exists())
        assert up.stop() == (0, "")


def test_old_observations_are_removed(tmp_path: Path) -> None:
    shown = PumpDemo(tmp_path, "amqp://127.0.0.1:1", 1.0)
    for second in range(40):
        shown._write("hill", "", datetime(2026, 11, 15, 12, 0, second, tzinfo=UTC))

    names = sorted(path.name for path in tmp_path.rglob("*.csv"))
    assert names == [f"20261115T1200{second:02d}Z.csv" for second in range(10, 40)]


def test_an_observation_is_a_table_of_one_line() -> None:
    heading, line = observation(datetime(2026, 7, 1, 15, tzinfo=UTC), 10.0, Random(1)).splitlines()
    assert heading == "time,temperature_c,wind_ms"
    time, temperature, _ = line.split(",")
    assert time == "2026-07-01T15:00:00Z"
    assert 12.0 < float(temperature) < 16.0
