"""Push devices and the inbox of the caller."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.requests import Request

from penstock_hives.api.dependencies import PlaceOwner, Reader, ResourcesDep
from penstock_hives.api.fields import Locale, PathId, RequestBody
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.api.responses import Cursor, Limit, Page
from penstock_hives.pagination import CursorPage
from penstock_hives.push.service import InboxNotification, InboxService, PushDevice
from penstock_hives.push.settings import PushSettings, open_vapid

router = APIRouter(route_class=IdempotentRoute, tags=["push"])

PushKeyPart = Annotated[str, Field(max_length=200, pattern="^[A-Za-z0-9_=-]*$")]


class NewDevice(RequestBody):
    kind: Literal["fcm", "webpush"]
    address: Annotated[str, Field(min_length=1, max_length=1000, pattern="^[^\\x00]*$")]
    """A Firebase token, or the endpoint of a browser's push subscription."""
    keys: dict[Literal["p256dh", "auth", "by"], PushKeyPart] = Field(default_factory=dict)
    """The keys of a browser's push subscription."""
    locale: Locale = "en"


class PushKey(RequestBody):
    key: str
    """The `applicationServerKey` for browsers."""


def get_push_settings(request: Request, context: ResourcesDep) -> PushSettings:
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
    """The public key with which browsers subscribe to Web Push."""
    return PushKey(key=(await asyncio.to_thread(open_vapid, settings)).public)


@router.get("/push/devices")
async def list_devices(caller: PlaceOwner, inbox: InboxDep) -> list[PushDevice]:
    """Your devices that receive notifications."""
    return await inbox.devices(caller)


@router.post("/push/devices", status_code=201)
async def register(body: NewDevice, caller: PlaceOwner, inbox: InboxDep) -> PushDevice:
    """Register a device. A device that is registered again belongs to the new user."""
    keys = {str(name): part for name, part in body.keys.items()}
    return await inbox.register(caller, body.kind, body.address, keys, body.locale)


@router.delete("/push/devices/{device}", status_code=204)
async def forget(device: PathId, caller: PlaceOwner, inbox: InboxDep) -> None:
    """Remove a device: it receives no more notifications."""
    await inbox.remove_device(caller, device)


@router.get("/inbox", response_model=Page[InboxNotification])
async def list_notes(
    caller: PlaceOwner,
    inbox: InboxDep,
    unread: Annotated[bool, Query(description="Only unread notifications.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> CursorPage[InboxNotification]:
    """Your notifications, the newest first."""
    return await inbox.notifications(caller, cursor, limit, unread=unread)


@router.post("/inbox/{note}/read", status_code=204)
async def read(note: PathId, caller: PlaceOwner, inbox: InboxDep) -> None:
    """Mark a notification as read."""
    await inbox.read(caller, note)


@router.post("/inbox/read", status_code=204)
async def read_all(caller: PlaceOwner, inbox: InboxDep) -> None:
    """Mark all notifications as read."""
    await inbox.read_all(caller)
