"""What a caller may be told beside the errors all of Penstock has (`core/errors.py`).

Each has one HTTP status, in `api/problems.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.errors import PenstockError


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field of a request."""

    field: str
    reason: str


class InvalidRequest(PenstockError):
    """A request that can be read and cannot be meant; names the fields."""

    def __init__(self, detail: str, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.errors = tuple(errors)


class RequestConflict(PenstockError):
    """What is asked for contradicts what there is."""


class IfMatchFailed(PenstockError):
    """The caller has seen an older version (`If-Match`)."""


class TooManyRequests(PenstockError):
    """More than the caller may ask; says when to come again."""

    def __init__(self, detail: str, retry_after: float) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class UnsupportedImage(PenstockError):
    """Not a picture, or none of the kinds we take."""


class NotConfigured(PenstockError):
    """This installation has no such part: no broker for sensors, no payments."""


class NotReady(PenstockError):
    """Nothing to answer with at the moment; it will be there soon."""
