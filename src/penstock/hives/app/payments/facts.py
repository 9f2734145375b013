"""What was read from an event, as it is kept: JSON and back, the two side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from penstock.hives.app.payments.events import (
    Event,
    Money,
    MoneyKind,
    Owner,
    Provider,
    Standing,
    Status,
)


def to_facts(event: Event) -> dict[str, Any]:
    """The parts of an event that are there."""
    facts: dict[str, Any] = {}
    if event.owner is not None:
        facts["owner"] = {"user_id": event.owner.user_id, "account_id": event.owner.account_id}
    if event.standing is not None:
        facts["standing"] = {
            field.name: _written(getattr(event.standing, field.name)) for field in fields(Standing)
        }
    if event.money is not None:
        money = event.money
        facts["money"] = {
            "kind": money.kind,
            "amount": str(money.amount),
            "currency": money.currency,
        }
    return facts


def from_row(row: Mapping[str, Any]) -> Event:
    """An event as the database has it; what the provider sent along stays there."""
    facts = row["facts"]
    owner, standing, money = (facts.get(part) for part in ("owner", "standing", "money"))
    return Event(
        Provider(row["provider"]),
        row["provider_event_id"],
        row["event_at"],
        row["kind"],
        row["ref"],
        row["related"],
        None if owner is None else Owner(**owner),
        None if standing is None else _standing(standing),
        None
        if money is None
        else Money(MoneyKind(money["kind"]), Decimal(money["amount"]), money["currency"]),
    )


def _standing(facts: Mapping[str, Any]) -> Standing:
    moments = {name: _read(value) for name, value in facts.items() if name.endswith("_at")}
    return Standing(Status(facts["status"]), facts["plan"], **moments)


def _written(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _read(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)
