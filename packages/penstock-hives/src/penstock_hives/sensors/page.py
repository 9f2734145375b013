"""`/hives/sensors`: freshness and status of the sensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from nicegui import ui

from penstock_hives.people.permissions import AppPermission
from penstock_hives.places.models import HiveSettings
from penstock_hives.sensors.health import SensorAlert, alert_title, recent_alerts
from penstock_hives.sensors.models import Sensor
from penstock_hives.web import components
from penstock_hives.web.context import DashboardContext
from penstock_store.dashboard.pages import PageRequest


async def draw_sensors(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    with ui.element("div").classes("h-head"):
        components.choose_account(view, "/hives/sensors")
        if view.caller.may(AppPermission.EDIT_SENSORS, view.account.id):
            ui.button("Add a sensor", icon="add").props(
                f"unelevated no-caps href=/hives/sensors/new?account={view.account.id}"
            )
    found = await context.services.sensors.of_account(view.caller, view.account.id, None, 200)
    counted = Counter(sensor.health for sensor in found.items)
    with components.figures():
        components.figure(f"{counted['good']:,}", "sending data")
        components.figure(f"{counted['stale']:,}", "stale")
        components.figure(f"{counted['never']:,}", "no data yet")
        components.figure(f"{counted['off']:,}", "switched off")
    alerts = await recent_alerts(context.resources.pool, view.account.id, None, 20)
    draw_alerts(alerts, {sensor.id: sensor for sensor in found.items}, view.account.time_zone)
    with components.card("Sensors"):
        hives = {hive.id: hive for hive in view.hives}
        draw_sensor_health(found.items, hives, context.resources.clock())


def draw_alerts(alerts: Sequence[SensorAlert], sensors: Mapping[int, Sensor], zone: str) -> None:
    if not alerts:
        return
    about = "Battery, signal, silence, drift and lost messages; also by mail and push."
    with components.card("Alerts", about):
        with components.table(["Sensor", "What", "Since", "Until"]) as table:
            for alert in alerts:
                sensor = sensors.get(alert.sensor_id)
                with table.row() as row:
                    with row.cell():
                        name = (sensor.name or sensor.serial) if sensor else "–"
                        ui.link(name, f"/hives/sensors/{alert.sensor_id}").classes("h-link")
                    with row.cell():
                        components.pill(
                            alert_title(alert.kind), "busy" if alert.ended_at else "bad"
                        )
                        ui.label(alert.detail).classes("p-muted p-small")
                    with row.cell():
                        ui.label(components.clock_text(alert.since, zone))
                    with row.cell():
                        ui.label(components.clock_text(alert.ended_at, zone))


def draw_sensor_health(
    sensors: Sequence[Sensor], hives: Mapping[int, HiveSettings], now: datetime
) -> None:
    """Sensors with a problem first."""
    if not sensors:
        components.empty_state("sensors", "No sensors yet", "A sensor counts people at a door.")
        return
    order = list(components.HEALTH)
    shown = sorted(sensors, key=lambda each: (each.health == order[0], each.hive_id, each.id))
    columns = ["Sensor", "Place", "Health", "Last data", "Battery:", "Signal:", "In, out:"]
    with components.table(columns) as table:
        for sensor in shown:
            status = sensor.status
            hive = hives.get(sensor.hive_id)
            with table.row() as row:
                with row.cell():
                    name = sensor.name or sensor.serial
                    ui.link(name, f"/hives/sensors/{sensor.id}").classes("h-link")
                    ui.label(sensor.serial).classes("p-muted p-mono")
                with row.cell():
                    ui.label(hive.name if hive else "–")
                with row.cell():
                    components.pill(sensor.health, components.HEALTH.get(sensor.health, "busy"))
                with row.cell():
                    ui.label(components.ago_text(sensor.last_seen_at, now))
                for value in (
                    components.number_text(_volts(status.battery_mv if status else None), "V"),
                    components.number_text(status.signal_dbm if status else None, "dBm"),
                    f"{sensor.total_in:,}, {sensor.total_out:,}",
                ):
                    with row.cell():
                        ui.label(value).classes("p-number")


def _volts(millivolts: int | None) -> float | None:
    return None if millivolts is None else millivolts / 1000
