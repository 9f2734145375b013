"""`/hives/sensors/new` and `/hives/sensors/{id}`: a sensor, its credentials, its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from nicegui import ui

from penstock.core.errors import NotFound
from penstock.core.units import parse_count
from penstock_hives.api.fields import fields_set
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.places.models import HiveSettings
from penstock_hives.sensors.endpoints import (
    ConfigurationBody,
    NewSensor,
    SensorEdit,
    SensorReplacement,
)
from penstock_hives.sensors.health import recent_alerts
from penstock_hives.sensors.models import Sensor, SensorAccess
from penstock_hives.sensors.page import draw_alerts
from penstock_hives.sensors.protocol import SensorConfiguration
from penstock_hives.web import components
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.forms import EditForm, act, ask
from penstock_store.dashboard.pages import PageRequest

PROTOCOLS: Final = {
    "v1": "v1: totals, 59 bytes",
    "v2": "v2: totals, counter and check sum",
    "event": "Single events",
}
BYTE_ORDERS: Final = {"big": "Big-endian", "little": "Little-endian"}
WRAPS: Final[dict[int | None, str]] = {
    None: "Unknown: learned from its reports",
    **{at: str(at) for at in (65535, 65523, 65503)},
}
STATES: Final = {"active": "Active", "disabled": "Disabled: its messages are not counted"}


async def draw_new_sensor(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    view.caller.require(AppPermission.EDIT_SENSORS, view.account.id)
    if not view.hives:
        components.empty_state("storefront", "No places yet", "A sensor is at a door of a place.")
        return
    hives = {hive.id: hive.name for hive in view.hives}
    wanted = parse_count(visit.query.get("hive", ""))

    async def save(body: NewSensor) -> None:
        made = await context.services.sensors.register(view.caller, chosen.value, body.model_dump())
        ui.navigate.to(f"/hives/sensors/{made.id}")

    form = EditForm(NewSensor, save)
    with components.card("The sensor"):
        chosen = ui.select(
            hives, label="Place", value=wanted if wanted in hives else next(iter(hives))
        )
        chosen.props("outlined dense options-dense").classes("w-full")
        form.text("serial", "Serial", hint="As on its label: letters, digits, _ and -.")
        form.text("name", "Name", hint="Such as main door.")
        _firmware(form, "v1", {}, False)
        with ui.row():
            form.submit_button("Add the sensor")


async def draw_sensor(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    caller = await context.caller(visit.user)
    number = parse_count(visit.parameters["id"])
    if number is None:
        raise NotFound(f"there is no sensor {visit.parameters['id']} of yours")
    sensor = await context.services.sensors.get(caller, number)
    hive = await context.services.hives.settings(caller, sensor.hive_id)
    visit.set_title(sensor.name or sensor.serial)
    _figures(context, sensor, hive)
    alerts = await recent_alerts(context.resources.pool, hive.account_id, sensor.id, 10)
    draw_alerts(alerts, {sensor.id: sensor}, hive.time_zone)
    if not caller.may(AppPermission.EDIT_SENSORS, hive.account_id) or sensor.state == "retired":
        return
    with ui.element("div").classes("p-columns"):
        await _edit(context, caller, sensor, hive)
        await _configuration(context, caller, sensor)
        _credentials(context, caller, sensor)
        _replacement(context, caller, sensor)


def _figures(context: DashboardContext, sensor: Sensor, hive: HiveSettings) -> None:
    now, status = context.resources.clock(), sensor.status
    with ui.row().classes("items-center gap-3"):
        components.pill(sensor.health, components.HEALTH.get(sensor.health, "busy"))
        ui.link(hive.name, f"/hives/place/{hive.id}").classes("h-link")
        ui.label(sensor.serial).classes("p-muted p-mono")
    battery = None if status is None or status.battery_mv is None else status.battery_mv / 1000
    with components.figures():
        components.figure(
            components.ago_text(sensor.last_seen_at, now).removesuffix(" ago"), "since data"
        )
        components.figure(components.number_text(battery, "V"), "battery")
        signal = status.signal_dbm if status else None
        components.figure(components.number_text(signal, "dBm"), "signal")
        discarded = status.discarded_events if status else None
        components.figure("–" if discarded is None else f"{discarded:,}", "discarded events")
        components.figure((status.firmware if status else None) or "–", "firmware")
        components.figure(f"{sensor.total_in:,}, {sensor.total_out:,}", "in, out")


def _firmware(
    form: EditForm[Any], protocol: str, profile: Mapping[str, Any], swapped: bool
) -> None:
    form.choice("protocol", "Protocol", PROTOCOLS, protocol)
    with ui.element("div").classes("h-dates"):
        order = profile.get("byte_order", "big")
        form.choice("profile.byte_order", "Byte order", BYTE_ORDERS, order)
        form.choice("profile.wrap_at", "Counters wrap at", WRAPS, profile.get("wrap_at"))
    plus = profile.get("plus_32", True)
    form.switch("profile.plus_32", "Adds 32 to every value (v1)", plus)
    counter = profile.get("event_counter", False)
    form.switch("profile.event_counter", "Numbers its events", counter)
    form.switch("direction_swapped", "Mounted the other way round: in means out", swapped)


async def _edit(
    context: DashboardContext, caller: Caller, sensor: Sensor, hive: HiveSettings
) -> None:
    async def save(body: SensorEdit) -> None:
        await context.services.sensors.edit(caller, sensor.id, fields_set(body), None)
        ui.notify("Saved", type="positive")

    page = await context.services.hives.of_account(caller, hive.account_id, None, 100)
    hives = {each.id: each.name for each in page.items if each.status == "active"}
    with components.card("Profile"):
        form = EditForm(SensorEdit, save)
        form.text("name", "Name", sensor.name)
        form.choice("hive_id", "Place", hives, sensor.hive_id)
        _firmware(form, sensor.protocol, sensor.profile, sensor.direction_swapped)
        form.choice("state", "State", STATES, sensor.state)
        with ui.row():
            form.submit_button()


async def _configuration(context: DashboardContext, caller: Caller, sensor: Sensor) -> None:
    async def save(body: ConfigurationBody) -> None:
        wanted = body.model_dump(exclude_none=True)
        await context.services.commands.configure(caller, sensor.id, wanted)
        await show()
        ui.notify("The sensor gets it when it connects.", type="positive")

    current = sensor.config or SensorConfiguration()
    about = "Sent to the sensor, which confirms it with its next status."
    with components.card("Configuration", about):
        form = EditForm(ConfigurationBody, save)
        with ui.element("div").classes("h-dates"):
            form.number("report_interval_min", "Report every", current.report_interval_min, "min")
            form.number("event_threshold", "Report after", current.event_threshold, "events")
            form.number("status_interval_min", "Status every", current.status_interval_min, "min")
            form.number("threshold_cm", "Distance", current.threshold_cm, "cm")
        with ui.row():
            form.submit_button("Send")
        sent = ui.column().classes("w-full gap-1").props("aria-live=polite")

    async def show() -> None:
        commands = await context.services.commands.of(caller, sensor.id, 3)
        sent.clear()
        with sent:
            for each in commands:
                when = components.ago_text(each.created_at, context.resources.clock())
                text = f"{each.configuration_id}: {each.state}, {when}"
                ui.label(text).classes("p-muted p-small")

    await show()


def _credentials(context: DashboardContext, caller: Caller, sensor: Sensor) -> None:
    about = "A user at the broker for this sensor only. A new password replaces the old one."
    with components.card("Credentials", about):
        if sensor.provisioned_at is not None:
            when = components.ago_text(sensor.provisioned_at, context.resources.clock())
            ui.label(f"Last created {when}.").classes("p-muted p-small")
        shown = ui.column().classes("w-full gap-2").props("aria-live=polite")

        async def create() -> None:
            async def work() -> None:
                access = await context.services.sensors.provision(caller, sensor.id)
                shown.clear()
                with shown:
                    draw_access(access)

            await act(work, "")

        ui.button("Create credentials", icon="key", on_click=create).props("unelevated no-caps")


def draw_access(access: SensorAccess) -> None:
    """To be printed or copied; the password is shown once."""
    with ui.element("div").classes("h-access").props("data-access"):
        for name, value in (
            ("Broker", access.address),
            ("User", access.user),
            ("Password", access.password),
            ("Publishes to", ", ".join(access.topics)),
            ("Configured by", access.command_topic),
        ):
            ui.label(name).classes("p-muted p-small")
            ui.label(value).classes("p-mono h-secret")
    with ui.row().classes("items-center"):
        ui.button("Print", icon="print").props("outline no-caps").on(
            "click", js_handler="() => window.print()"
        )
        ui.label("The password is not shown again.").classes("p-muted p-small")


def _replacement(context: DashboardContext, caller: Caller, sensor: Sensor) -> None:
    async def save(body: SensorReplacement) -> None:
        made = await context.services.sensors.replace(caller, sensor.id, body.serial)
        ui.navigate.to(f"/hives/sensors/{made.id}")

    about = "The new device takes over its door. Counts so far remain."
    with components.card("Replace or retire", about):
        form = EditForm(SensorReplacement, save)
        form.text("serial", "Serial of the new device")
        with ui.row():
            form.submit_button("Replace")
            retire = partial(context.services.sensors.retire, caller, sensor.id)
            question = f"Retire {sensor.name or sensor.serial}? It can no longer connect."
            dialog = ask(question, "Retire", retire, "/hives/sensors")
            ui.button("Retire", on_click=dialog.open).props("flat no-caps color=negative")
