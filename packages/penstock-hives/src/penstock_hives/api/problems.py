"""Which error of the hives application has which HTTP status and title."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.client import BrokerUnreachable, NoReply
from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    ContentTooLarge,
    NotFound,
    PreconditionFailed,
)
from penstock_hives.errors import (
    IfMatchFailed,
    InvalidRequest,
    NotConfigured,
    NotReady,
    PlanRequired,
    RequestConflict,
    TooManyRequests,
    UnsupportedImage,
)
from penstock_store.http.problems import ProblemMapper, ProblemRule


def _members(error: Exception) -> Mapping[str, Any]:
    if isinstance(error, InvalidRequest) and error.errors:
        return {"errors": error.errors}
    if isinstance(error, PlanRequired):
        return {"feature": error.feature, "plans": error.plans}
    return {}


PROBLEMS: Final = ProblemMapper(
    (
        ProblemRule(AuthenticationFailed, 401, "Sign in"),
        ProblemRule(PlanRequired, 402, "Not in your plan"),
        ProblemRule(AccessRefused, 403, "Not permitted"),
        ProblemRule(NotFound, 404, "Not found"),
        ProblemRule(RequestConflict, 409, "Conflict"),
        ProblemRule(IfMatchFailed, 412, "Changed meanwhile"),
        ProblemRule(PreconditionFailed, 409, "Conflict"),
        ProblemRule(ContentTooLarge, 413, "Too large"),
        ProblemRule(UnsupportedImage, 415, "Unsupported image"),
        ProblemRule(InvalidRequest, 422, "Invalid request"),
        ProblemRule(TooManyRequests, 429, "Too many requests"),
        ProblemRule(NotConfigured, 501, "Not configured"),
        ProblemRule(NoReply, 503, "Unavailable"),
        ProblemRule(BrokerUnreachable, 503, "Unavailable"),
        ProblemRule(NotReady, 503, "Not ready"),
    ),
    _members,
)
