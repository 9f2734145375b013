"""Devices that are told, and the inbox."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.requests import Request

from penstock_hives.api.dependencies import Reader, ResourcesDep, require_permission
from penstock_hives.api.fields import Locale, PathId, RequestBody
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.api.responses import Cursor, Limit, Page
from penstock_hives.pagination import CursorPage
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.push.service import InboxNotification, InboxService, PushDevice
from penstock_hives.push.settings import PushSettings, open_vapid

router = APIRouter(route_class=IdempotentRoute, tags=["push"])

Owner = Annotated[Caller, Depends(require_permission(AppPermission.OWN_PLACES))]
PushKeyPart = Annotated[str, Field(max_length=200, pattern="^[A-Za-z0-9_=-]*$")]


class NewDevice(RequestBody):
    kind: Literal["fcm", "webpush"]
    address: Annotated[str, Field(min_length=1, max_length=1000, pattern="^[^\\x00]*$")]
    """A token of Firebase's, or the endpoint of a browser's push subscription."""
    keys: dict[Literal["p256dh", "auth", "by"], PushKeyPart] = Field(default_factory=dict)
    """A browser's keys."""
    locale: Locale = "en"


class PushKey(RequestBody):
    key: str
    """What a browser subscribes with (`applicationServerKey`)."""


def get_push_settings(request: Request, context: ResourcesDep) -> PushSettings:
    """This installation's; read once."""
    state = request.app.state
    if not hasattr(state, "push"):
        state.push = PushSettings.beside(context.settings.images.parent)
    found = state.push
    assert isinstance(found, PushSettings)
    return found


PushSettingsDep = Annotated[PushSettings, Depends(get_push_settings)]


def get_inbox(context: ResourcesDep, settings: PushSettingsDep) -> InboxService:
    local = settings.local and not context.settings.production
    return InboxService(context.pool, settings.services, local=local, clock=context.clock)


InboxDep = Annotated[InboxService, Depends(get_inbox)]


@router.get("/push/key")
async def get_key(caller: Reader, settings: PushSettingsDep) -> PushKey:
    return PushKey(key=(await asyncio.to_thread(open_vapid, settings)).public)


@router.get("/push/devices")
async def list_devices(caller: Owner, desk: InboxDep) -> list[PushDevice]:
    return await desk.devices(caller)


@router.post("/push/devices", status_code=201)
async def register(body: NewDevice, caller: Owner, desk: InboxDep) -> PushDevice:
    """Have a device told. Registered again, it changes hands."""
    keys = {str(name): part for name, part in body.keys.items()}
    return await desk.register(caller, body.kind, body.address, keys, body.locale)


@router.delete("/push/devices/{device}", status_code=204)
async def forget(device: PathId, caller: Owner, desk: InboxDep) -> None:
    await desk.forget(caller, device)


@router.get("/inbox", response_model=Page[InboxNotification])
async def list_notes(
    caller: Owner,
    desk: InboxDep,
    unread: Annotated[bool, Query(description="Only what has not been read.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> CursorPage[InboxNotification]:
    """What one has been told, the newest first."""
    return await desk.inbox(caller, cursor, limit, unread=unread)


@router.post("/inbox/{note}/read", status_code=204)
async def read(note: PathId, caller: Owner, desk: InboxDep) -> None:
    await desk.read(caller, note)


@router.post("/inbox/read", status_code=204)
async def read_all(caller: Owner, desk: InboxDep) -> None:
    await desk.read_all(caller)
