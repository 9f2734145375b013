"""What the API says of itself: every error, who may call what, an example of every shape.

FastAPI describes requests and answers from their types. Added here are the problems each call may
answer with, the ways to sign in, the permission a call needs, and examples.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from penstock.hives.app.api.caller import Allowed
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.api.problems import MEDIA_TYPE, Problem
from penstock.hives.app.domain.roles import GRANTS, Permission, Role

DESCRIPTION: Final = """
How full places are: hives with live occupancy, typical weeks and forecasts, deals, and what
businesses need to run them. Times are in UTC, days and hours of a hive by its own clock.

* **Errors** are `application/problem+json` (RFC 9457).
* **Lists** have `items` and `next`; give `next` as `cursor` for the page after.
* **ETags**: `If-None-Match` for what you have, `If-Match` for changes based on it (412).
* **Idempotency-Key** on any write: the same key gets the same answer, for a day.
* **Rate limits** are by caller: 429 with `Retry-After`.
* Anonymous and free callers are answered from a cache, minutes old at most; `as_of` says.
"""
#: An example of each shape, by its name.
_EXAMPLES: Final = Path(__file__).with_name("examples.json")
_SIGN_IN: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"key": []}]
_CLOCK: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
#: Problems any call may answer with, and those of calls that need a permission, or write.
_ALWAYS: Final = {
    "422": "Not as it should be: `errors` says which fields.",
    "429": "Too many requests: wait for `Retry-After` seconds.",
    "503": "The database or the cache has nothing at the moment: come again.",
}
_GUARDED: Final = {"401": "Sign in.", "403": "Signed in, but not permitted."}
_NAMED: Final = {"404": "There is no such thing, or not for you."}
#: Parameters of a query that name something which may not be there.
_THINGS: Final = frozenset({"account", "hive"})
_WRITES: Final = {
    "400": "What was sent cannot be read.",
    "409": "It contradicts what there is.",
    "412": "It was changed since the ETag in `If-Match`.",
    "413": "Too large.",
}
_UPLOADS: Final = {"415": "No picture, or none of the kinds that are taken."}
_ELSEWHERE: Final = {"501": "This installation has no such part."}


def describe(app: FastAPI, routers: Sequence[APIRouter], prefix: str) -> None:
    """Have the application, which has these routers under the prefix, describe itself so."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, routers, prefix)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def permission_of(route: APIRoute) -> Permission | None:
    """What a caller needs; nothing is asked of who calls what has none."""
    return next(_permissions(route.dependant), None)


def _permissions(dependant: Dependant) -> Iterator[Permission]:
    for each in dependant.dependencies:
        call: Callable[..., Any] | None = each.call
        if isinstance(call, Allowed):
            yield call.permission
        yield from _permissions(each)


def _document(app: FastAPI, routers: Sequence[APIRouter], prefix: str) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION.strip(), routes=app.routes
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(Problem.model_json_schema(ref_template="#/components/schemas/{model}")["$defs"])
    shape = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    shape.pop("$defs")
    schemas["Problem"] = shape
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for name, example in json.loads(_EXAMPLES.read_bytes()).items():
        if name in schemas:
            schemas[name]["examples"] = [example]
    _local_times(schemas)
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                for verb in route.methods or ():
                    _complete(document["paths"][prefix + route.path][verb.lower()], route, verb)
    return document


def _local_times(shape: Any) -> None:
    """Times of day are by some hive's clock; JSON Schema's `time` has a zone in it."""
    if isinstance(shape, dict):
        if shape.get("format") == "time":
            del shape["format"]
            shape["pattern"] = _CLOCK
        for each in shape.values():
            _local_times(each)
    elif isinstance(shape, list):
        for each in shape:
            _local_times(each)


def _complete(operation: dict[str, Any], route: APIRoute, verb: str) -> None:
    permission = permission_of(route)
    responses = operation["responses"]
    told = dict(_ALWAYS)
    if permission is not None:
        operation["x-permission"] = permission.value
        told |= {"401": _GUARDED["401"]}
        if permission not in GRANTS[Role.ANONYMOUS]:
            operation["security"] = _SIGN_IN
            told |= _GUARDED
    asked = {each["name"] for each in operation.get("parameters", ())}
    if "{" in route.path or asked & _THINGS:
        told |= _NAMED
    if verb != "GET":
        told |= _NAMED | _WRITES
    else:
        responses.setdefault("304", {"description": "You have it: `If-None-Match`."})
    if isinstance(route, IdempotentRoute) and route.keeps:
        operation.setdefault("parameters", []).append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "minLength": 1, "maxLength": 200},
            }
        )
    if route.path.endswith("/images"):
        told |= _UPLOADS
    if "/sensors/" in route.path:
        told |= _ELSEWHERE
    for status, words in told.items():
        responses[status] = {"description": words}
    for status, response in responses.items():
        if status >= "400":
            shape = {"schema": {"$ref": "#/components/schemas/Problem"}}
            response["content"] = {MEDIA_TYPE: shape}
