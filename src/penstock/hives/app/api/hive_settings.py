"""Hives as their businesses run them: opened, edited, counted in by hand, closed."""

from __future__ import annotations

from datetime import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from penstock.hives.app.api.caller import allowed
from penstock.hives.app.api.context import Served
from penstock.hives.app.api.etags import IfMatch, tagged
from penstock.hives.app.api.fields import Body, Id, Line, LocalTime, Moment, Note, Word, Zone, named
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.api.pages import Cursor, Limit, Page
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.hives import (
    HiveChange,
    HiveSettings,
    HiveType,
    ManualCount,
    Network,
)
from penstock.hives.app.domain.roles import Permission

router = APIRouter(route_class=IdempotentRoute, tags=["business"])

Editor = Annotated[Caller, Depends(allowed(Permission.EDIT_HIVES))]
Member = Annotated[Caller, Depends(allowed(Permission.READ_ACCOUNT))]
Counter = Annotated[Caller, Depends(allowed(Permission.COUNT_HEADS))]
Fitter = Annotated[Caller, Depends(allowed(Permission.EDIT_SENSORS))]
Watcher = Annotated[Caller, Depends(allowed(Permission.READ_SENSORS))]
Typist = Annotated[Caller, Depends(allowed(Permission.EDIT_TYPES))]

Clock = Annotated[str, Field(pattern=r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$")]
Hours = dict[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], list[tuple[Clock, Clock]]]


class AddressBody(Body):
    """Where it is; the country by its two letters."""

    street: Annotated[Note, Field(max_length=200)] = ""
    city: Annotated[Note, Field(max_length=100)] = ""
    zip: Annotated[Note, Field(max_length=20)] = ""
    country: Annotated[str, Field(pattern="^([A-Z]{2})?$")] = ""
    lat: Annotated[float, Field(ge=-90, le=90)] | None = None
    lon: Annotated[float, Field(ge=-180, le=180)] | None = None


class NewHive(Body):
    name: Line
    type: Word
    time_zone: Zone
    description: Note = ""
    capacity: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    opening_hours: Hours = Field(default_factory=dict)
    reset_time: LocalTime = time(4)
    public: bool = True
    address: AddressBody | None = None


class HiveEdit(Body):
    """What is to be different; the rest stays."""

    name: Line | None = None
    type: Word | None = None
    time_zone: Zone | None = None
    description: Note | None = None
    capacity: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    opening_hours: Hours | None = None
    reset_time: LocalTime | None = None
    public: bool | None = None
    address: AddressBody | None = None


class NewType(Body):
    code: Word
    name: Line


class HeadCount(Body):
    counted: Annotated[int, Field(ge=0, le=1_000_000)]
    at: Moment | None = None
    """When; now, if it is not said."""


class NewNetwork(Body):
    kind: Literal["wifi", "ethernet", "cellular"]
    ssid: Annotated[Line, Field(max_length=32)] | None = None
    secret_ref: Line | None = None
    """Where its password is kept; never the password."""
    notes: Note = ""


@router.get("/accounts/{account}/hives", response_model=Page[HiveSettings])
async def list_own_hives(
    request: Request,
    account: Id,
    caller: Member,
    services: Served,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """A business's hives, hidden and closed ones too."""
    return tagged(request, await services.hives.of_account(caller, account, cursor, limit))


@router.post("/accounts/{account}/hives", status_code=201)
async def open_hive(
    account: Id, body: NewHive, caller: Editor, services: Served, response: Response
) -> HiveSettings:
    """A new hive, if the plan includes one more."""
    made = await services.hives.open(caller, account, _change(body.model_dump()))
    response.headers["Location"] = f"/v1/hives/{made.id}/settings"
    return made


@router.get("/hives/{hive}/settings", response_model=HiveSettings)
async def get_settings(request: Request, hive: Id, caller: Member, services: Served) -> Response:
    """A hive as its business edits it; its ETag goes into If-Match."""
    return tagged(request, await services.hives.settings(caller, hive))


@router.patch("/hives/{hive}", response_model=HiveSettings)
async def edit_hive(
    request: Request,
    hive: Id,
    body: HiveEdit,
    caller: Editor,
    services: Served,
    seen: IfMatch = None,
) -> Response:
    """Change what is named; a capacity of null is none."""
    change = _change(named(body))
    return tagged(request, await services.hives.edit(caller, hive, change, seen))


@router.delete("/hives/{hive}", status_code=204)
async def close_hive(hive: Id, caller: Editor, services: Served) -> None:
    """It is hidden and closed; what was counted stays."""
    await services.hives.close(caller, hive)


@router.post("/hives/{hive}/counts", status_code=201)
async def count_heads(hive: Id, body: HeadCount, caller: Counter, services: Served) -> ManualCount:
    """Heads that somebody counted: the truth from then on."""
    return await services.occupancy.count(caller, hive, body.counted, body.at)


@router.get("/hives/{hive}/counts")
async def list_counts(
    hive: Id, caller: Counter, services: Served, limit: Limit = 50
) -> list[ManualCount]:
    return await services.occupancy.counts(caller, hive, limit)


@router.get("/hives/{hive}/networks")
async def list_networks(hive: Id, caller: Watcher, services: Served) -> list[Network]:
    return await services.occupancy.networks(caller, hive)


@router.post("/hives/{hive}/networks", status_code=201)
async def add_network(hive: Id, body: NewNetwork, caller: Fitter, services: Served) -> Network:
    return await services.occupancy.add_network(caller, hive, body.model_dump())


@router.delete("/hives/{hive}/networks/{network}", status_code=204)
async def remove_network(hive: Id, network: Id, caller: Fitter, services: Served) -> None:
    await services.occupancy.remove_network(caller, hive, network)


@router.post("/hive-types", status_code=201, tags=["operators"])
async def add_type(body: NewType, caller: Typist, services: Served) -> HiveType:
    return await services.hives.add_type(caller, body.code, body.name)


def _change(values: dict[str, Any]) -> HiveChange:
    """Parts of an address that are not named stay, as other fields do."""
    return HiveChange(values, values.pop("address", None))
