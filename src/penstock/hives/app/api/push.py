"""Devices that are told, and the inbox."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.requests import Request

from penstock.hives.app.api.caller import Reader, allowed
from penstock.hives.app.api.context import Context
from penstock.hives.app.api.fields import Body, Id, Locale
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.api.pages import Cursor, Limit, Page
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.cursors import Listed
from penstock.hives.app.domain.roles import Permission
from penstock.hives.app.push.desk import Device, InboxNote, PushDesk
from penstock.hives.app.push.settings import PushSettings, open_vapid

router = APIRouter(route_class=IdempotentRoute, tags=["push"])

Owner = Annotated[Caller, Depends(allowed(Permission.OWN_PLACES))]
Part = Annotated[str, Field(max_length=200, pattern="^[A-Za-z0-9_=-]*$")]


class NewDevice(Body):
    kind: Literal["fcm", "webpush"]
    address: Annotated[str, Field(min_length=1, max_length=1000, pattern="^[^\\x00]*$")]
    """A token of Firebase's, or the endpoint of a browser's push subscription."""
    keys: dict[Literal["p256dh", "auth", "by"], Part] = Field(default_factory=dict)
    """A browser's keys."""
    locale: Locale = "en"


class PushKey(Body):
    key: str
    """What a browser subscribes with (`applicationServerKey`)."""


def settings(request: Request, context: Context) -> PushSettings:
    """This installation's; read once."""
    state = request.app.state
    if not hasattr(state, "push"):
        state.push = PushSettings.beside(context.settings.images.parent)
    found = state.push
    assert isinstance(found, PushSettings)
    return found


Settings = Annotated[PushSettings, Depends(settings)]


def desk(context: Context, settings: Settings) -> PushDesk:
    local = settings.local and not context.settings.production
    return PushDesk(context.pool, settings.services, local=local, clock=context.clock)


Desk = Annotated[PushDesk, Depends(desk)]


@router.get("/push/key")
async def get_key(caller: Reader, settings: Settings) -> PushKey:
    return PushKey(key=(await asyncio.to_thread(open_vapid, settings)).public)


@router.get("/push/devices")
async def list_devices(caller: Owner, desk: Desk) -> list[Device]:
    return await desk.devices(caller)


@router.post("/push/devices", status_code=201)
async def register(body: NewDevice, caller: Owner, desk: Desk) -> Device:
    """Have a device told. Registered again, it changes hands."""
    keys = {str(name): part for name, part in body.keys.items()}
    return await desk.register(caller, body.kind, body.address, keys, body.locale)


@router.delete("/push/devices/{device}", status_code=204)
async def forget(device: Id, caller: Owner, desk: Desk) -> None:
    await desk.forget(caller, device)


@router.get("/inbox", response_model=Page[InboxNote])
async def list_notes(
    caller: Owner,
    desk: Desk,
    unread: Annotated[bool, Query(description="Only what has not been read.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Listed[InboxNote]:
    """What one has been told, the newest first."""
    return await desk.inbox(caller, cursor, limit, unread=unread)


@router.post("/inbox/{note}/read", status_code=204)
async def read(note: Id, caller: Owner, desk: Desk) -> None:
    await desk.read(caller, note)


@router.post("/inbox/read", status_code=204)
async def read_all(caller: Owner, desk: Desk) -> None:
    await desk.read_all(caller)
