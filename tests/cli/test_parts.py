"""Which parts a machine runs, and what each is told."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest

from penstock.cli import equipment, parts
from penstock.cli.parts import Plan, Wishes, plan
from penstock.cli.supervisor import Addresses
from tests.cli.command import environment

ADDRESSES = {
    "broker": [
        *("amqp://127.0.0.1:1", "mqtt://127.0.0.1:2"),
        *("http://127.0.0.1:3", "padres://127.0.0.1:4"),
    ],
    "database": ["postgresql://penstock@/penstock"],
}
APPLICATIONS = ["hives", "alerts", "pump", "jobs", "history", "dashboards"]
REACHING = "--url amqp://127.0.0.1:1 --database postgresql://penstock@/penstock"


@pytest.fixture(autouse=True)
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equipment, "lacking_modules", lambda names: None)
    monkeypatch.setattr(parts, "lacking_java", lambda: None)


def names(found: Plan) -> list[str]:
    return [part.name for part in found.parts]


def command(found: Plan, name: str, addresses: Addresses = ADDRESSES) -> str:
    [part] = [each for each in found.parts if each.name == name]
    return " ".join(part.command(addresses)[3:])


def test_all_there_is_comes_in_order_of_need() -> None:
    found = plan(Wishes())
    assert names(found) == ["broker", "database", "pipeline", "demo", *APPLICATIONS]
    assert {tuple(part.needs) for part in found.parts[2:]} == {("broker", "database")}


@pytest.mark.parametrize(
    ("wishes", "parts"),
    [
        (
            {"demo": False},
            ["broker", "database", "pipeline", *(each for each in APPLICATIONS if each != "pump")],
        ),
        ({"applications": False}, ["broker", "database", "pipeline", "demo"]),
        ({"pipeline": False}, ["broker", "demo"]),
        ({"pipeline": False, "demo": False}, ["broker"]),
        ({"database": "postgresql://elsewhere"}, ["broker", "pipeline", "demo", *APPLICATIONS]),
    ],
)
def test_what_is_not_wished_for_is_not_there(wishes: dict[str, Any], parts: list[str]) -> None:
    assert names(plan(Wishes(**wishes))) == parts


def test_parts_are_told_where_the_others_are() -> None:
    found = plan(Wishes(data=["--data", "here"], demonstration=["--hives", "3"]))
    assert command(found, "pipeline") == f"pipeline run --stop-with-stdin --data here {REACHING}"
    assert command(found, "demo") == (
        f"demo --stop-with-stdin --data here {REACHING} --mqtt mqtt://127.0.0.1:2 --hives 3"
    )


def test_applications_are_told_where_the_others_are() -> None:
    found = plan(Wishes(data=["--data", "here"]))

    hives = command(found, "hives")
    assert hives.startswith(f"hives serve --workers 1 --stop-with-stdin --data here {REACHING} ")
    assert "--mqtt mqtt://127.0.0.1:2" in hives
    assert "--management http://guest:guest@127.0.0.1:3" in hives
    assert command(found, "jobs").endswith(REACHING)
    assert command(found, "pump") == (
        "pump demo --stop-with-stdin --data here --url amqp://127.0.0.1:1"
    )
    assert command(found, "history") == (
        "historian --stop-with-stdin --data here --stream-url amqp://127.0.0.1:1 "
        "--database postgresql://penstock@/penstock --url padres://127.0.0.1:4"
    )
    assert command(found, "dashboards").startswith("dashboards --gate hives --stop-with-stdin ")


def test_a_broker_that_speaks_by_tls_alone_is_reached_so_and_trusted() -> None:
    found = plan(Wishes(certificate="/etc/our broker.pem"))
    secure = {**ADDRESSES, "broker": ["amqps://127.0.0.1:5", "mqtts://127.0.0.1:6"]}
    trusted = "?cafile=/etc/our%20broker.pem"

    for part in ("pipeline", "demo", "hives", "alerts", "pump", "jobs"):
        assert f"--url amqps://127.0.0.1:5{trusted}" in command(found, part, secure)
    assert f"--mqtt mqtts://127.0.0.1:6{trusted}" in command(found, "demo", secure)


def test_a_port_that_is_taken_is_left_to_whoever_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("penstock.cli.parts._HIVES_PORT", port)
        assert "--port 0" in command(plan(Wishes()), "hives")
    assert f"--port {port}" in command(plan(Wishes()), "hives")


def test_history_needs_a_broker_that_speaks_its_language() -> None:
    assert "history" not in names(plan(Wishes(overlay=False)))


def test_a_database_by_url_is_the_one_they_are_told() -> None:
    found = plan(Wishes(database="postgresql://elsewhere"))
    assert "--database postgresql://elsewhere" in command(found, "pipeline")
    assert "--database postgresql://elsewhere" in command(found, "demo")


def test_without_java_the_rest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "lacking_java", lambda: "install it")
    found = plan(Wishes())
    assert names(found) == ["broker", "database", "demo", *APPLICATIONS]
    assert found.left_out == {"pipeline": "install it"}


def test_without_the_extra_the_broker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equipment, "lacking_modules", lambda names: "pip install it")
    found = plan(Wishes())
    assert names(found) == ["broker"]
    assert found.left_out == {"database": "pip install it", "demo": "pip install it"}


@pytest.mark.parametrize("heavy", ["numpy", "psycopg", "pyarrow", "pyspark", "sqlalchemy"])
def test_a_plain_installation_can_show_what_runs(heavy: str) -> None:
    code = f"import sys, penstock.cli.up, penstock.cli.panel; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0
