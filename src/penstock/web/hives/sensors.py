"""`/hives/sensors`: whether the doors are heard of, and how the devices are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from nicegui import ui

from penstock.hives.app.domain.hives import HiveSettings
from penstock.hives.app.domain.sensors import Sensor
from penstock.web.hives import pieces, words
from penstock.web.hives.office import Office
from penstock.web.pages import Visit


async def draw(office: Office, visit: Visit) -> None:
    ui.add_head_html(pieces.STYLES)
    desk = await office.desk(visit)
    with ui.element("div").classes("h-head"):
        pieces.choose_account(desk, "/hives/sensors")
    found = await office.services.sensors.of_account(desk.caller, desk.account.id, None, 200)
    counted = Counter(sensor.health for sensor in found.items)
    with pieces.figures():
        pieces.figure(f"{counted['good']:,}", "heard of")
        pieces.figure(f"{counted['stale']:,}", "silent")
        pieces.figure(f"{counted['never']:,}", "never heard of")
        pieces.figure(f"{counted['off']:,}", "switched off")
    with pieces.card("Sensors"):
        hives = {hive.id: hive for hive in desk.hives}
        health(found.items, hives, office.resources.clock())


def health(sensors: Sequence[Sensor], hives: Mapping[int, HiveSettings], now: datetime) -> None:
    """Those that need somebody first."""
    if not sensors:
        pieces.nothing("sensors", "No sensors yet", "Register one through the API.")
        return
    order = list(words.HEALTH)
    shown = sorted(sensors, key=lambda each: (each.health == order[0], each.hive_id, each.id))
    columns = ["Sensor", "Place", "Health", "Heard of", "Battery:", "Signal:", "In, out:"]
    with pieces.table(columns) as table:
        for sensor in shown:
            status = sensor.status
            hive = hives.get(sensor.hive_id)
            with table.row() as row:
                with row.cell():
                    ui.label(sensor.name or sensor.serial).classes("p-h3")
                    ui.label(sensor.serial).classes("p-muted p-mono")
                with row.cell():
                    ui.label(hive.name if hive else "–")
                with row.cell():
                    pieces.pill(sensor.health, words.HEALTH.get(sensor.health, "busy"))
                with row.cell():
                    ui.label(words.ago(sensor.last_seen_at, now))
                for value in (
                    words.number(_volts(status.battery_mv if status else None), "V"),
                    words.number(status.signal_dbm if status else None, "dBm"),
                    f"{sensor.total_in:,}, {sensor.total_out:,}",
                ):
                    with row.cell():
                        ui.label(value).classes("p-number")


def _volts(millivolts: int | None) -> float | None:
    return None if millivolts is None else millivolts / 1000
