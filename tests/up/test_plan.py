"""Which parts a machine runs, and what each is told."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest

from penstock.cli.up.extension import UpOptions, listen_flags
from penstock.cli.up.plan import Plan, plan
from penstock.cli.up.supervisor import Addresses
from tests.cli.command import environment

ADDRESSES = {
    "broker": [
        *("amqp://127.0.0.1:1", "mqtt://127.0.0.1:2"),
        *("http://127.0.0.1:3", "padres://127.0.0.1:4"),
    ],
    "database": ["postgresql://penstock@/penstock"],
}
EVERYTHING = {
    *("broker", "database", "pipeline", "demo", "hives", "alerts"),
    *("pump", "jobs", "history", "dashboards"),
}
REACHING = "--url amqp://127.0.0.1:1 --database postgresql://penstock@/penstock"


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_hives.up.java_problem", lambda: None)


def names(found: Plan) -> list[str]:
    return [part.name for part in found.parts]


def command(found: Plan, name: str, addresses: Addresses = ADDRESSES) -> str:
    [part] = [each for each in found.parts if each.name == name]
    return " ".join(part.command(addresses)[3:])


def test_all_parts_come_in_order_of_need() -> None:
    found = plan(UpOptions())
    assert set(names(found)) == EVERYTHING
    for number, part in enumerate(found.parts):
        assert set(part.needs) <= set(names(found)[:number])
    assert all("broker" in part.needs for part in found.parts if part.name not in found_first)


found_first = {"broker", "database"}


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"demo": False}, {"demo", "pump"}),
        (
            {"applications": False},
            {"hives", "alerts", "pump", "jobs", "history", "dashboards"},
        ),
        ({"pipeline": False}, EVERYTHING - {"broker", "demo"}),
        ({"pipeline": False, "demo": False}, EVERYTHING - {"broker"}),
        ({"database": "postgresql://elsewhere"}, {"database"}),
    ],
)
def test_what_is_not_asked_for_is_not_there(options: dict[str, Any], missing: set[str]) -> None:
    assert set(names(plan(UpOptions(**options)))) == EVERYTHING - missing


def test_parts_are_told_where_the_others_are() -> None:
    found = plan(UpOptions(data=["--data", "here"], hives=3))
    assert command(found, "pipeline") == f"pipeline run --stop-with-stdin --data here {REACHING}"
    assert command(found, "demo") == (
        f"demo --stop-with-stdin --data here {REACHING} --mqtt mqtt://127.0.0.1:2 --hives 3"
    )


def test_applications_are_told_where_the_others_are() -> None:
    found = plan(UpOptions(data=["--data", "here"]))

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
    found = plan(UpOptions(certificate="/etc/our broker.pem"))
    secure = {**ADDRESSES, "broker": ["amqps://127.0.0.1:5", "mqtts://127.0.0.1:6"]}
    trusted = "?cafile=/etc/our%20broker.pem"

    for part in ("pipeline", "demo", "hives", "alerts", "pump", "jobs"):
        assert f"--url amqps://127.0.0.1:5{trusted}" in command(found, part, secure)
    assert f"--mqtt mqtts://127.0.0.1:6{trusted}" in command(found, "demo", secure)


def test_a_default_port_that_is_taken_is_left_to_whoever_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert listen_flags(address, address) == ["--host", "127.0.0.1", "--port", "0"]
        port = address.rpartition(":")[2]
        # An address that was set is used, or the part says that it cannot be.
        assert listen_flags(address, "127.0.0.1:1") == ["--host", "127.0.0.1", "--port", port]


def test_addresses_of_the_applications_are_settings() -> None:
    found = plan(UpOptions(site="10.0.0.1:81", dashboards="[::1]:82"))
    assert "--host 10.0.0.1 --port 81" in command(found, "hives")
    assert "--host ::1 --port 82" in command(found, "dashboards")


def test_history_needs_a_broker_that_speaks_its_language() -> None:
    assert "history" not in names(plan(UpOptions(overlay=False)))


def test_a_database_by_url_is_the_one_they_are_told() -> None:
    found = plan(UpOptions(database="postgresql://elsewhere"))
    assert "--database postgresql://elsewhere" in command(found, "pipeline")
    assert "--database postgresql://elsewhere" in command(found, "demo")


def test_without_java_the_rest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_hives.up.java_problem", lambda: "install it")
    found = plan(UpOptions())
    assert set(names(found)) == EVERYTHING - {"pipeline"}
    assert found.left_out == {"pipeline": "install it"}


def test_without_extensions_the_broker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.up.plan.entry_points", lambda group: ())
    assert names(plan(UpOptions())) == ["broker"]


@pytest.mark.parametrize("heavy", ["numpy", "psycopg", "pyarrow", "pyspark", "sqlalchemy"])
def test_a_plain_installation_can_show_what_runs(heavy: str) -> None:
    code = f"import sys, penstock.cli.up.panel; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0
