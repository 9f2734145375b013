"""One's notification settings at work: what each waits for, and when it last met it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from penstock.hives.app.alerts.shown import Alert, Alerts
from penstock.hives.app.api.caller import allowed
from penstock.hives.app.api.context import Context
from penstock.hives.app.api.fields import Id
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.roles import Permission

router = APIRouter(route_class=IdempotentRoute, tags=["alerts"])

Owner = Annotated[Caller, Depends(allowed(Permission.OWN_PLACES))]


def shown(context: Context) -> Alerts:
    return Alerts(context.pool, context.clock)


Shown = Annotated[Alerts, Depends(shown)]


@router.get("/alerts")
async def list_alerts(caller: Owner, alerts: Shown) -> list[Alert]:
    """Each as the subscription it is now, in the content language."""
    return await alerts.of(caller)


@router.post("/alerts/{alert}/test", status_code=204)
async def try_out(alert: Id, caller: Owner, alerts: Shown) -> None:
    """Send oneself a note, as the alert would."""
    await alerts.try_out(caller, alert)
