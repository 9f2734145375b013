"""`penstock sensors`, as a shell runs it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.client.blocking_client import connect
from tests.cli.command import Running, run
from tests.peers import Penstock, free_port


def test_a_backlog_goes_to_a_file_with_its_truth_and_its_catalogue(tmp_path: Path) -> None:
    made = run(
        *("sensors", "simulate", "--hives", "3", "--backlog", "3h", "--seed", "5"),
        *("--out", "frames.jsonl", "--truth", "truth.parquet", "--catalogue", "hives.json"),
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr
    assert " sensors in 3 hives, " in made.stdout
    catalogue = json.loads((tmp_path / "hives.json").read_text())
    assert len(catalogue["hives"]) == 3
    serials = {sensor["serial"] for sensor in catalogue["sensors"]}
    lines = (tmp_path / "frames.jsonl").read_text().splitlines()
    assert {json.loads(line)["topic"].split("/")[1] for line in lines} <= serials
    assert (tmp_path / "truth.ledger.parquet").exists()


def test_a_backlog_goes_to_a_broker(mqtt_penstock: Penstock) -> None:
    with connect(mqtt_penstock.url) as fabric:
        stream = "sensors-test-backlog"
        fabric.stream(stream, subjects=["sensors.#"]).send(b"first")
        sent = run(
            *("sensors", "simulate", "--hives", "3", "--backlog", "2h"),
            *("--url", mqtt_penstock.mqtt_url),
        )
        assert sent.returncode == 0, sent.stderr
        count = int(sent.stdout.split(" frames")[0].replace(",", ""))
        assert count > 0
        with fabric.replay(stream) as replayed:
            kept = [replayed.receive().body for _ in range(1 + count)]
        assert kept[0] == b"first"


def test_a_recording_is_sent_again_byte_by_byte(tmp_path: Path, mqtt_penstock: Penstock) -> None:
    line = {"at": "2026-03-02T12:00:00Z", "topic": "sensors/re-1/event", "body_hex": "00ff"}
    path = tmp_path / "frames.jsonl"
    path.write_text(json.dumps(line) + "\n")
    with connect(mqtt_penstock.url) as fabric, fabric.subscribe("sensors.re-1.*") as inflow:
        sent = run("sensors", "replay", path, "--url", mqtt_penstock.url, "--speed", "max")
        assert sent.stdout == "1 frames sent\n"
        message = inflow.receive()
    assert message.body == b"\x00\xff"
    assert message.headers["x-received-at"] == "1772452800000"


def test_a_live_fleet_is_configured_and_stopped(tmp_path: Path, mqtt_penstock: Penstock) -> None:
    url = mqtt_penstock.mqtt_url
    simulation = ("sensors", "simulate", "--hives", "2", "--no-quirks", "--url", url)
    with Running(tmp_path, *simulation) as fleet:
        told = run("sensors", "configure", "s00001", "--id", "77", "--url", url)
        assert told.returncode == 0, told.stderr
        assert told.stdout.startswith("s00001 has configuration 77: up since ")
        status, rest = fleet.stop(signal.SIGTERM)
    assert status == 0, fleet.errors
    assert "in 2 hives" in rest


def test_a_sensor_that_does_not_answer_is_an_error_that_helps(mqtt_penstock: Penstock) -> None:
    asked = run(
        *("sensors", "configure", "nobody", "--timeout", "0.1", "--url", mqtt_penstock.mqtt_url)
    )
    assert asked.returncode == 1
    assert "sensor nobody has not acknowledged configuration" in asked.stderr
    assert "is it switched on" in asked.stderr


def test_no_broker_is_an_error_that_helps() -> None:
    asked = run("sensors", "configure", "x", "--url", f"mqtt://127.0.0.1:{free_port()}")
    assert asked.returncode == 6
    assert "is one running?" in asked.stderr


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["simulate", "--out", "x.jsonl"], "--for 1d"),
        (["simulate", "--out", "x.txt", "--backlog", "1h"], "a .jsonl or a .parquet"),
        (["simulate", "--backlog", "soon"], "such as 10s"),
        (["simulate", "--backlog", "1h", "--for", "1h"], "omit --for"),
        (["simulate", "--speed", "max"], "--for 1d"),
        (["simulate", "--live"], "--backlog"),
        (["simulate", "--start", "today"], "2026-01-31T12:00"),
        (["simulate", "--quirk", "rust=1"], "there are plus_32, wraps"),
        (["configure", "a/b"], "letters, digits"),
        (["configure", "a", "--byte-order", "middle"], "big or little"),
        (["replay", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_flags_that_cannot_be_are_refused(
    arguments: list[str], advice: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["sensors", *arguments])
    assert asked.exit_code == 2
    assert advice in asked.stderr
