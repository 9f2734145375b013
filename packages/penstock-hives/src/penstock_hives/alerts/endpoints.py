"""One's notification settings at work: what each waits for, and when it last met it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from penstock_hives.alerts.service import AlertService, AlertStatus
from penstock_hives.api.dependencies import ResourcesDep, require_permission
from penstock_hives.api.fields import PathId
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.people.permissions import AppPermission, Caller

router = APIRouter(route_class=IdempotentRoute, tags=["alerts"])

Owner = Annotated[Caller, Depends(require_permission(AppPermission.OWN_PLACES))]


def get_alert_service(context: ResourcesDep) -> AlertService:
    return AlertService(context.pool, context.clock)


AlertServiceDep = Annotated[AlertService, Depends(get_alert_service)]


@router.get("/alerts")
async def list_alerts(caller: Owner, alerts: AlertServiceDep) -> list[AlertStatus]:
    """Each as the subscription it is now, in the content language."""
    return await alerts.of(caller)


@router.post("/alerts/{alert}/test", status_code=204)
async def try_out(alert: PathId, caller: Owner, alerts: AlertServiceDep) -> None:
    """Send oneself a note, as the alert would."""
    await alerts.try_out(caller, alert)
