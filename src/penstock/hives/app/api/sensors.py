"""Sensors: registered, provisioned, configured, scheduled, looked after."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock.hives.app.api.caller import allowed
from penstock.hives.app.api.context import Served
from penstock.hives.app.api.etags import IfMatch, tagged
from penstock.hives.app.api.fields import Body, Id, LocalTime, Moment, Note, Part, Ref, named, span
from penstock.hives.app.api.idempotency import SECRET, IdempotentRoute
from penstock.hives.app.api.pages import Cursor, Limit, Page
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.roles import Permission
from penstock.hives.app.domain.sensors import (
    Command,
    Modem,
    NetworkConfig,
    Schedule,
    Sensor,
    SensorAccess,
    SensorReport,
)

router = APIRouter(route_class=IdempotentRoute, tags=["sensors"])

Watcher = Annotated[Caller, Depends(allowed(Permission.READ_SENSORS))]
Fitter = Annotated[Caller, Depends(allowed(Permission.EDIT_SENSORS))]

Name = Annotated[Note, Field(max_length=200)]
Serial = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
U16 = Annotated[int, Field(ge=0, le=65535)]
Interval = Annotated[int, Field(ge=1, le=65535)]


class ProfileBody(Part):
    """The ways of its firmware."""

    byte_order: Literal["big", "little"] = "big"
    wrap_at: Literal[65535, 65523, 65503] | None = None
    plus_32: bool = True
    event_counter: bool = False


class NewSensor(Body):
    serial: Serial
    name: Name = ""
    protocol: Literal["v1", "v2", "event"] = "v1"
    profile: ProfileBody = ProfileBody()
    direction_swapped: bool = False


class SensorEdit(Body):
    name: Name | None = None
    hive_id: Ref | None = None
    protocol: Literal["v1", "v2", "event"] | None = None
    profile: ProfileBody | None = None
    direction_swapped: bool | None = None
    state: Literal["active", "disabled"] | None = None


class ConfigurationBody(Body):
    """How it should behave; what is not named stays."""

    threshold_cm: U16 | None = None
    report_interval_min: Interval | None = None
    status_interval_min: Interval | None = None
    event_threshold: Interval | None = None


class ScheduleBody(Body):
    """Another reporting interval, on some weekdays, between two local times."""

    weekdays: Annotated[int, Field(ge=1, le=127)]
    """Monday is 1, Tuesday 2, Sunday 64; added up."""
    from_time: LocalTime
    to_time: LocalTime
    interval_min: Interval


class Schedules(Body):
    schedules: Annotated[list[ScheduleBody], Field(max_length=20)]


class NetworkBody(Body):
    broker_host: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:-]{1,253}$")]
    port: Annotated[int, Field(ge=1, le=65535)] = 8883
    tls: bool = True
    apn: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9.-]*$")] = ""
    user_ref: Annotated[str, Field(max_length=200, pattern=r"^[\w.@-]+$")] | None = None


class ModemBody(Body):
    imei: Annotated[str, Field(pattern="^[0-9]{14,16}$")]
    iccid: Annotated[str, Field(pattern="^[0-9]{18,22}$")] | None = None
    operator: Name = ""
    msisdn: Annotated[str, Field(pattern=r"^\+?[0-9]{5,15}$")] | None = None
    model: Name = ""


@router.get("/accounts/{account}/sensors", response_model=Page[Sensor])
async def sensors_of_account(
    request: Request,
    account: Id,
    caller: Watcher,
    services: Served,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """All sensors of a business, and how each is."""
    return tagged(request, await services.sensors.of_account(caller, account, cursor, limit))


@router.get("/hives/{hive}/sensors")
async def sensors_of_hive(hive: Id, caller: Watcher, services: Served) -> list[Sensor]:
    return await services.sensors.of_hive(caller, hive)


@router.post("/hives/{hive}/sensors", status_code=201)
async def register_sensor(
    hive: Id, body: NewSensor, caller: Fitter, services: Served, response: Response
) -> Sensor:
    """A sensor at a door of the hive, by the serial in its topics."""
    made = await services.sensors.register(caller, hive, body.model_dump())
    response.headers["Location"] = f"/v1/sensors/{made.id}"
    return made


@router.get("/sensors/{sensor}", response_model=Sensor)
async def get_sensor(request: Request, sensor: Id, caller: Watcher, services: Served) -> Response:
    """What it is, and how it is: last heard of, battery, signal, firmware, all it has counted."""
    return tagged(request, await services.sensors.get(caller, sensor))


@router.patch("/sensors/{sensor}", response_model=Sensor)
async def edit_sensor(
    request: Request,
    sensor: Id,
    body: SensorEdit,
    caller: Fitter,
    services: Served,
    seen: IfMatch = None,
) -> Response:
    return tagged(request, await services.sensors.edit(caller, sensor, named(body), seen))


@router.delete("/sensors/{sensor}", status_code=204)
async def retire_sensor(sensor: Id, caller: Fitter, services: Served) -> None:
    """It counts no more and may not sign in; what it counted stays."""
    await services.sensors.retire(caller, sensor)


@router.post("/sensors/{sensor}/provision", status_code=201, openapi_extra=SECRET)
async def provision_sensor(sensor: Id, caller: Fitter, services: Served) -> SensorAccess:
    """A user of the broker that is this sensor and nobody else. The password is shown this once."""
    return await services.sensors.provision(caller, sensor)


@router.put("/sensors/{sensor}/configuration", status_code=202)
async def configure_sensor(
    sensor: Id, body: ConfigurationBody, caller: Fitter, services: Served
) -> Command:
    """Told by a retained message; acknowledged when a status of the sensor names it."""
    wanted = body.model_dump(exclude_none=True)
    return await services.commands.configure(caller, sensor, wanted)


@router.get("/sensors/{sensor}/configuration")
async def list_commands(
    sensor: Id, caller: Watcher, services: Served, limit: Limit = 10
) -> list[Command]:
    """What it was told, the newest first, and whether it has heard."""
    return await services.commands.of(caller, sensor, limit)


@router.get("/sensors/{sensor}/schedules")
async def list_schedules(sensor: Id, caller: Watcher, services: Served) -> list[Schedule]:
    return await services.commands.schedules(caller, sensor)


@router.put("/sensors/{sensor}/schedules")
async def set_schedules(
    sensor: Id, body: Schedules, caller: Fitter, services: Served
) -> list[Schedule]:
    """All of them at once. Where several hold, the shortest interval does; where none, 30 min."""
    wanted = [each.model_dump() for each in body.schedules]
    return await services.commands.schedule(caller, sensor, wanted)


@router.put("/sensors/{sensor}/network")
async def set_network(sensor: Id, body: NetworkBody, caller: Fitter, services: Served) -> Sensor:
    network = NetworkConfig(**body.model_dump())
    return await services.sensors.connect_by(caller, sensor, network)


@router.put("/sensors/{sensor}/modem")
async def set_modem(sensor: Id, body: ModemBody, caller: Fitter, services: Served) -> Sensor:
    return await services.sensors.fit_modem(caller, sensor, Modem(**body.model_dump()))


@router.get("/sensors/{sensor}/reports")
async def list_reports(
    sensor: Id,
    caller: Watcher,
    services: Served,
    begin: Annotated[Moment, Query(alias="from")],
    end: Annotated[Moment, Query(alias="to")],
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> list[SensorReport]:
    """What it sent, as it was counted, the newest first; a week at most."""
    span(begin, end, 7)
    return await services.sensors.reports(caller, sensor, begin, end, limit)
