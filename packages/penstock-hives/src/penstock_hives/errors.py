"""Errors of the application; `api/problems.py` maps them to HTTP statuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.core.errors import NotFound, PenstockError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FieldError:
    """An invalid field of a request."""

    field: str
    reason: str


class InvalidRequest(PenstockError):
    """A request that is well-formed but has invalid values."""

    def __init__(self, detail: str, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.errors = tuple(errors)


def invalid_field(field: str, reason: str) -> InvalidRequest:
    """`invalid_field("limit", "must be 1 to 100, got 0")`"""
    return invalid_fields([FieldError(field, reason)])


def invalid_fields(errors: Sequence[FieldError]) -> InvalidRequest:
    detail = "; ".join(f"{error.field} {error.reason}" for error in errors)
    return InvalidRequest(detail, errors)


def require_found(found: T | None, what: str) -> T:
    """The value, or `NotFound`; `what` names it: `hive 7`."""
    if found is None:
        raise NotFound(f"{what} not found")
    return found


class RequestConflict(PenstockError):
    """The request contradicts the current state."""


class PlanRequired(PenstockError):
    """The plan does not include it, or not as much; `plans` do."""

    def __init__(self, detail: str, feature: str, plans: Sequence[str]) -> None:
        hint = f"choose the plan {' or '.join(plans)}" if plans else "no plan includes more"
        super().__init__(f"{detail}: {hint}")
        self.feature = feature
        self.plans = tuple(plans)


class IfMatchFailed(PenstockError):
    """The resource has changed since the ETag in `If-Match`."""


class TooManyRequests(PenstockError):
    """A limit of requests was reached; `retry_after` seconds later there is room again."""

    def __init__(self, detail: str, retry_after: float) -> None:
        super().__init__(detail)
        self.retry_after = retry_after  #: seconds


class UnsupportedImage(PenstockError):
    """Not an image, or not of an accepted format."""


class NotConfigured(PenstockError):
    """A part that this installation does not have: a broker for sensors, payments."""


class NotReady(PenstockError):
    """No data yet; later requests will succeed."""
