"""Endpoints of sensors: registration, provisioning, configuration, schedules, reports."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock_hives.api.dependencies import ServicesDep, require_permission
from penstock_hives.api.fields import (
    LocalTime,
    LongText,
    ObjectId,
    PathId,
    RequestBody,
    RequestPart,
    Timestamp,
    check_span,
    fields_set,
)
from penstock_hives.api.idempotency import SECRET, IdempotentRoute
from penstock_hives.api.responses import Cursor, IfMatch, Limit, Page, etag_response
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.sensors.models import (
    NetworkConfig,
    ReportSchedule,
    Sensor,
    SensorAccess,
    SensorCommand,
    SensorModem,
    SensorReport,
)

router = APIRouter(route_class=IdempotentRoute, tags=["sensors"])

Watcher = Annotated[Caller, Depends(require_permission(AppPermission.READ_SENSORS))]
Fitter = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_SENSORS))]

Name = Annotated[LongText, Field(max_length=200)]
Serial = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
U16 = Annotated[int, Field(ge=0, le=65535)]
Interval = Annotated[int, Field(ge=1, le=65535)]


class ProfileBody(RequestPart):
    """Properties of its firmware."""

    byte_order: Literal["big", "little"] = "big"
    wrap_at: Literal[65535, 65523, 65503] | None = None
    plus_32: bool = True
    event_counter: bool = False


class NewSensor(RequestBody):
    serial: Serial
    name: Name = ""
    protocol: Literal["v1", "v2", "event"] = "v1"
    profile: ProfileBody = ProfileBody()
    direction_swapped: bool = False


class SensorEdit(RequestBody):
    name: Name | None = None
    hive_id: ObjectId | None = None
    protocol: Literal["v1", "v2", "event"] | None = None
    profile: ProfileBody | None = None
    direction_swapped: bool | None = None
    state: Literal["active", "disabled"] | None = None


class SensorReplacement(RequestBody):
    serial: Serial
    """Of the new device."""


class ConfigurationBody(RequestBody):
    """The behaviour of the sensor; missing fields do not change."""

    threshold_cm: U16 | None = None
    report_interval_min: Interval | None = None
    status_interval_min: Interval | None = None
    event_threshold: Interval | None = None


class ScheduleBody(RequestBody):
    """Another reporting interval, on some weekdays, between two local times."""

    weekdays: Annotated[int, Field(ge=1, le=127)]
    """Monday is 1, Tuesday 2, …, Sunday 64; the sum of the days."""
    from_time: LocalTime
    to_time: LocalTime
    interval_min: Interval


class Schedules(RequestBody):
    schedules: Annotated[list[ScheduleBody], Field(max_length=20)]


class NetworkBody(RequestBody):
    broker_host: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:-]{1,253}$")]
    port: Annotated[int, Field(ge=1, le=65535)] = 8883
    tls: bool = True
    apn: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9.-]*$")] = ""
    user_ref: Annotated[str, Field(max_length=200, pattern=r"^[\w.@-]+$")] | None = None


class ModemBody(RequestBody):
    imei: Annotated[str, Field(pattern="^[0-9]{14,16}$")]
    iccid: Annotated[str, Field(pattern="^[0-9]{18,22}$")] | None = None
    operator: Name = ""
    msisdn: Annotated[str, Field(pattern=r"^\+?[0-9]{5,15}$")] | None = None
    model: Name = ""


@router.get("/accounts/{account}/sensors", response_model=Page[Sensor])
async def sensors_of_account(
    request: Request,
    account: PathId,
    caller: Watcher,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """All sensors of a business, and their health."""
    return etag_response(request, await services.sensors.of_account(caller, account, cursor, limit))


@router.get("/hives/{hive}/sensors")
async def sensors_of_hive(hive: PathId, caller: Watcher, services: ServicesDep) -> list[Sensor]:
    """The sensors of a hive, and their health."""
    return await services.sensors.of_hive(caller, hive)


@router.post("/hives/{hive}/sensors", status_code=201)
async def register_sensor(
    hive: PathId, body: NewSensor, caller: Fitter, services: ServicesDep, response: Response
) -> Sensor:
    """A sensor at a door of the hive, by the serial in its topics."""
    made = await services.sensors.register(caller, hive, body.model_dump())
    response.headers["Location"] = f"/v1/sensors/{made.id}"
    return made


@router.get("/sensors/{sensor}", response_model=Sensor)
async def get_sensor(
    request: Request, sensor: PathId, caller: Watcher, services: ServicesDep
) -> Response:
    """The sensor and its status: last message, battery, signal, firmware, totals."""
    return etag_response(request, await services.sensors.get(caller, sensor))


@router.patch("/sensors/{sensor}", response_model=Sensor)
async def edit_sensor(
    request: Request,
    sensor: PathId,
    body: SensorEdit,
    caller: Fitter,
    services: ServicesDep,
    seen: IfMatch = None,
) -> Response:
    """Change the given fields of a sensor."""
    return etag_response(
        request, await services.sensors.edit(caller, sensor, fields_set(body), seen)
    )


@router.delete("/sensors/{sensor}", status_code=204)
async def retire_sensor(sensor: PathId, caller: Fitter, services: ServicesDep) -> None:
    """Its messages are no longer counted, and its login is deleted. Its counts remain."""
    await services.sensors.retire(caller, sensor)


@router.post("/sensors/{sensor}/replace", status_code=201)
async def replace_sensor(
    sensor: PathId, body: SensorReplacement, caller: Fitter, services: ServicesDep
) -> Sensor:
    """Retires the sensor; the new device has its name, profile and place."""
    return await services.sensors.replace(caller, sensor, body.serial)


@router.post("/sensors/{sensor}/provision", status_code=201, openapi_extra=SECRET)
async def provision_sensor(sensor: PathId, caller: Fitter, services: ServicesDep) -> SensorAccess:
    """Creates a broker user for this sensor only. The password is returned once."""
    return await services.sensors.provision(caller, sensor)


@router.put("/sensors/{sensor}/configuration", status_code=202)
async def configure_sensor(
    sensor: PathId, body: ConfigurationBody, caller: Fitter, services: ServicesDep
) -> SensorCommand:
    """Published as a retained message; acknowledged by a status of the sensor."""
    wanted = body.model_dump(exclude_none=True)
    return await services.commands.configure(caller, sensor, wanted)


@router.get("/sensors/{sensor}/configuration")
async def list_commands(
    sensor: PathId, caller: Watcher, services: ServicesDep, limit: Limit = 10
) -> list[SensorCommand]:
    """Configurations of the sensor, the newest first, and their state."""
    return await services.commands.of(caller, sensor, limit)


@router.get("/sensors/{sensor}/schedules")
async def list_schedules(
    sensor: PathId, caller: Watcher, services: ServicesDep
) -> list[ReportSchedule]:
    """The report intervals of the sensor by weekday and time."""
    return await services.commands.schedules(caller, sensor)


@router.put("/sensors/{sensor}/schedules")
async def set_schedules(
    sensor: PathId, body: Schedules, caller: Fitter, services: ServicesDep
) -> list[ReportSchedule]:
    """Replaces all schedules. If several apply, the shortest interval; if none, 30 minutes."""
    wanted = [each.model_dump() for each in body.schedules]
    return await services.commands.schedule(caller, sensor, wanted)


@router.put("/sensors/{sensor}/network")
async def set_network(
    sensor: PathId, body: NetworkBody, caller: Fitter, services: ServicesDep
) -> Sensor:
    """Set the access point (APN) and the broker address of the sensor."""
    network = NetworkConfig(**body.model_dump())
    return await services.sensors.set_network(caller, sensor, network)


@router.put("/sensors/{sensor}/modem")
async def set_modem(
    sensor: PathId, body: ModemBody, caller: Fitter, services: ServicesDep
) -> Sensor:
    """Set the modem of the sensor: IMEI, SIM card and operator."""
    return await services.sensors.set_modem(caller, sensor, SensorModem(**body.model_dump()))


@router.get("/sensors/{sensor}/reports")
async def list_reports(
    sensor: PathId,
    caller: Watcher,
    services: ServicesDep,
    begin: Annotated[Timestamp, Query(alias="from")],
    end: Annotated[Timestamp, Query(alias="to")],
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> list[SensorReport]:
    """Reports and events of the sensor as counted, the newest first; at most a week."""
    check_span(begin, end, 7)
    return await services.sensors.reports(caller, sensor, begin, end, limit)
