"""Sensors over HTTP: registered, provisioned, configured, scheduled."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock_hives.occupancy.schemas import SILVER_REPORT_SCHEMA
from penstock_hives.sensors.protocol import FirmwareProfile, SensorConfiguration
from penstock_spark.lake import Lake
from tests.hives.app.world import NOON, Business, World


@pytest.fixture
async def business(world: World) -> Business:
    return await world.business()


async def registered(world: World, business: Business, **values: object) -> dict[str, object]:
    body = {"serial": uuid.uuid4().hex[:12], "name": "Front door", "protocol": "v1", **values}
    made: dict[str, object] = await world.make(
        f"/hives/{business.hive}/sensors", business.admin, body
    )
    return made


def report(world: World, sensor: object, at: datetime) -> None:
    """As the pipeline enters one."""
    world.rows(
        """
        INSERT INTO sensor_state (sensor_id, received_at, at, sum_in, sum_out, batch)
        VALUES (%s, %s, %s, 40, 38, 1)
        ON CONFLICT (sensor_id) DO UPDATE SET received_at = excluded.received_at
        """,
        *(sensor, at, at),
    )


def status(world: World, sensor: object, configuration: object, at: datetime = NOON) -> None:
    world.rows(
        """
        INSERT INTO sensor_status (sensor_id, received_at, battery_mv, signal_dbm, firmware,
                                   configuration_id)
        VALUES (%s, %s, 3600, -71, '1.2.3.4', %s)
        ON CONFLICT (sensor_id) DO UPDATE SET received_at = excluded.received_at,
            configuration_id = excluded.configuration_id
        """,
        *(sensor, at, configuration),
    )


async def test_a_sensor_is_registered_once_by_its_serial(world: World, business: Business) -> None:
    made = await registered(world, business)

    assert (made["health"], made["state"]) == ("never", "active")
    assert made["profile"] == {"byte_order": "big", "plus_32": True, "event_counter": False}
    again = {"serial": made["serial"]}
    path = f"/hives/{business.hive}/sensors"
    answer = await world.call("POST", path, business.admin, json=again)
    assert answer.status_code == 409


async def test_serials_are_words_of_a_topic(world: World, business: Business) -> None:
    path = f"/hives/{business.hive}/sensors"

    for serial in ("", "a/b", "a.b", "#", "../x", "ü", "x" * 65, "'; --"):
        answer = await world.call("POST", path, business.admin, json={"serial": serial})
        assert answer.status_code == 422, serial


async def test_provisioning_makes_a_user_of_the_broker_and_tells_its_password_once(
    world: World, business: Business
) -> None:
    sensor = await registered(world, business)

    told = await world.make(f"/sensors/{sensor['id']}/provision", business.admin)

    assert world.post.users == {told["user"]: told["password"]}
    assert told["command_topic"] == f"commands/sensor/{sensor['serial']}"
    assert f"sensors/{sensor['serial']}/report" in told["topics"]
    shown = await world.get(f"/sensors/{sensor['id']}", business.admin)
    assert shown.json()["provisioned_at"] is not None
    assert told["password"] not in shown.text


async def test_a_broker_that_is_away_provisions_nobody(world: World, business: Business) -> None:
    sensor = await registered(world, business)
    world.post.away = True

    answer = await world.call("POST", f"/sensors/{sensor['id']}/provision", business.admin)

    assert answer.status_code == 503
    assert (await world.read(f"/sensors/{sensor['id']}", business.admin))["provisioned_at"] is None


async def test_a_configuration_is_retained_and_acknowledged_by_a_status(
    world: World, business: Business
) -> None:
    sensor = await registered(world, business, profile={"byte_order": "little"})
    path = f"/sensors/{sensor['id']}/configuration"

    command = (await world.put(path, business.admin, {"report_interval_min": 5})).json()

    assert command["state"] == "sent"
    wire = world.post.retained[f"commands/sensor/{sensor['serial']}"]
    profile = FirmwareProfile.from_json({"byte_order": "little"})
    assert SensorConfiguration.decode(wire, profile) == SensorConfiguration(
        command["configuration_id"], report_interval_min=5
    )
    status(world, sensor["id"], command["configuration_id"])
    [told] = await world.read(path, business.member)
    assert (told["state"], told["acked_at"]) == ("acknowledged", "2026-03-02T11:00:00Z")


async def test_what_a_configuration_does_not_name_stays_as_told_last(
    world: World, business: Business
) -> None:
    sensor = await registered(world, business)
    path = f"/sensors/{sensor['id']}/configuration"
    await world.put(path, business.admin, {"report_interval_min": 5})

    command = (await world.put(path, business.admin, {"event_threshold": 50})).json()

    assert command["config"]["report_interval_min"] == 5
    assert command["config"]["event_threshold"] == 50


async def test_a_configuration_waits_for_a_broker_that_is_away(
    world: World, business: Business
) -> None:
    sensor = await registered(world, business)
    world.post.away = True
    path = f"/sensors/{sensor['id']}/configuration"
    answer = await world.put(path, business.admin, {"report_interval_min": 5})
    assert (answer.status_code, answer.json()["state"]) == (202, "waiting")

    world.post.away = False
    await world.tend()

    assert (await world.read(path, business.admin))[0]["state"] == "sent"


async def test_schedules_configure_a_sensor_when_their_time_has_come(
    world: World, business: Business
) -> None:
    sensor = await registered(world, business)
    path = f"/sensors/{sensor['id']}"
    noon_to_two = {"weekdays": 1, "from_time": "12:00", "to_time": "14:00", "interval_min": 5}
    answer = await world.put(f"{path}/schedules", business.admin, {"schedules": [noon_to_two]})
    assert answer.status_code == 200

    await world.tend()  # it is Monday noon
    during = (await world.read(path, business.admin))["config"]["report_interval_min"]
    world.clock.now = NOON + timedelta(hours=3)
    await world.tend()
    after = (await world.read(path, business.admin))["config"]["report_interval_min"]
    await world.tend()

    assert (during, after) == (5, 30)
    assert len(await world.read(f"{path}/configuration", business.admin)) == 2


async def test_a_sensor_silent_for_twice_its_interval_is_stale(
    world: World, business: Business
) -> None:
    sensor = await registered(world, business)
    path = f"/sensors/{sensor['id']}"
    report(world, sensor["id"], NOON)
    status(world, sensor["id"], 0)
    heard = await world.read(path, business.member)
    assert (heard["health"], heard["total_in"]) == ("good", 40)
    assert heard["status"]["battery_mv"] == 3600

    world.clock.now = NOON + timedelta(minutes=61)

    assert (await world.read(path, business.member))["health"] == "stale"


async def test_network_and_modem_are_kept(world: World, business: Business) -> None:
    sensor = await registered(world, business)
    path = f"/sensors/{sensor['id']}"

    network = {"broker_host": "broker.example", "apn": "iot"}
    assert (await world.put(f"{path}/network", business.admin, network)).status_code == 200
    modem = {"imei": "490154203237518", "model": "SIM7000"}
    assert (await world.put(f"{path}/modem", business.admin, modem)).status_code == 200

    shown = await world.read(path, business.admin)
    assert (shown["network"]["broker_host"], shown["network"]["port"]) == ("broker.example", 8883)
    assert shown["modem"]["model"] == "SIM7000"


async def test_a_retired_sensor_may_not_sign_in(world: World, business: Business) -> None:
    sensor = await registered(world, business)
    await world.make(f"/sensors/{sensor['id']}/provision", business.admin)

    assert (await world.delete(f"/sensors/{sensor['id']}", business.admin)).status_code == 204

    assert world.post.users == {}
    assert (await world.read(f"/sensors/{sensor['id']}", business.admin))["health"] == "off"
    answer = await world.call("POST", f"/sensors/{sensor['id']}/provision", business.admin)
    assert answer.status_code == 409


async def test_members_look_at_sensors_and_admins_change_them(
    world: World, business: Business
) -> None:
    sensor = await registered(world, business)
    path = f"/sensors/{sensor['id']}"

    assert (await world.get(path, business.member)).status_code == 200
    assert (await world.patch(path, business.member, {"name": "x"})).status_code == 403
    assert (await world.get(path, (await world.business()).admin)).status_code == 404
    answer = await world.patch(path, business.admin, {"name": "Back", "direction_swapped": True})
    assert (answer.json()["name"], answer.json()["direction_swapped"]) == ("Back", True)


async def test_a_business_sees_all_its_sensors(world: World, business: Business) -> None:
    made = [(await registered(world, business))["id"] for _ in range(3)]

    first = await world.read(f"/accounts/{business.account}/sensors?limit=2", business.member)
    cursor = first["next"]
    rest = await world.read(
        f"/accounts/{business.account}/sensors?limit=2&cursor={cursor}", business.member
    )

    assert [each["id"] for each in first["items"] + rest["items"]] == made


async def test_reports_are_read_from_the_lake(
    world: World, business: Business, tmp_path: Path
) -> None:
    sensor = await registered(world, business)
    _lay(tmp_path / "lake", str(sensor["serial"]))

    found = await world.read(
        f"/sensors/{sensor['id']}/reports?from=2026-03-02T00:00:00Z&to=2026-03-03T00:00:00Z",
        business.member,
    )

    assert [(each["delta_in"], each["total_in"]) for each in found] == [(3, 8), (5, 5)]


def _lay(root: Path, serial: str) -> None:
    """Two reports of a sensor and one of another, as the flow writes them."""
    times = [NOON, NOON + timedelta(minutes=5), NOON]
    rows = [
        {
            "stream": "sensors",
            "offset": n,
            "received_at": at,
            "sensor": serial if n < 2 else "another",
            "kind": "report",
            "at": at,
            "quality": 0,
            "total_in": (5, 8, 1)[n],
            "total_out": 0,
            "delta_in": (5, 3, 1)[n],
            "delta_out": 0,
            "day": at.astimezone(UTC).date(),
            "batch": 0,
        }
        for n, at in enumerate(times)
    ]
    lake = Lake.open(root, "hives")
    draft = lake.stage("silver.reports", 0)
    writing = draft.open_writer(SILVER_REPORT_SCHEMA)
    writing.add(pa.Table.from_pylist(rows, SILVER_REPORT_SCHEMA))
    lake.commit("silver.reports", 0, writing.close(), SILVER_REPORT_SCHEMA)
