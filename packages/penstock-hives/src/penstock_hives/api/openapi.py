"""The OpenAPI document of the API, and its page `GET /v1/docs`.

FastAPI derives requests and responses from types. Added here are the problems of each operation,
authentication, required permissions and examples. The page is plain HTML without scripts or other
origins, so it works offline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from penstock_hives.api.dependencies import PermissionRequired
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.people.permissions import GRANTS, AppPermission, UserRole
from penstock_store.http.problems import add_problem_schema

DESCRIPTION: Final = """
Hives with live occupancy, typical weeks, forecasts and deals, and their administration by
businesses. Timestamps are in UTC; days and hours of a hive are in its local time.

* **Errors** are `application/problem+json` (RFC 9457).
* **Lists** have `items` and `next`; pass `next` as `cursor` for the next page.
* **ETags**: `If-None-Match` for reads (304), `If-Match` for changes (412).
* **Idempotency-Key** on any write: a repetition gets the same response, for a day.
* **Rate limits** per caller: 429 with `Retry-After`.
* Anonymous and free callers read from a cache that is minutes old at most; see `as_of`.
"""
#: An example for each schema, by its name.
_EXAMPLES: Final = Path(__file__).with_name("examples.json")
_SIGN_IN: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"key": []}]
_CLOCK: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
#: Problems of every operation, and of those with a permission, an id, or a write.
_ALWAYS: Final = {
    "422": "Invalid values: see `errors`.",
    "429": "Too many requests: wait `Retry-After` seconds.",
    "503": "Temporarily unavailable, or no data yet: try again later.",
}
_GUARDED: Final = {
    "401": "Not signed in.",
    "402": "Not in the plan.",
    "403": "Not permitted.",
}
_NAMED: Final = {"404": "Not found, or not visible to you."}
#: Query parameters that are ids.
_ID_PARAMETERS: Final = frozenset({"account", "hive"})
_WRITES: Final = {
    "400": "The body cannot be parsed.",
    "409": "Conflict with the current state.",
    "412": "The resource has changed since the ETag in `If-Match`.",
    "413": "Too large.",
}
_UPLOADS: Final = {"415": "Not an image, or not of an accepted format."}
_OPTIONAL: Final = {"501": "Not configured in this installation."}


def install_openapi(app: FastAPI, routers: Sequence[APIRouter], prefix: str) -> None:

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, routers, prefix)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def permission_of(route: APIRoute) -> AppPermission | None:
    return next(_permissions(route.dependant), None)


def _permissions(dependant: Dependant) -> Iterator[AppPermission]:
    for each in dependant.dependencies:
        call: Callable[..., Any] | None = each.call
        if isinstance(call, PermissionRequired):
            yield call.permission
        yield from _permissions(each)


def _document(app: FastAPI, routers: Sequence[APIRouter], prefix: str) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION.strip(), routes=app.routes
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                for verb in route.methods or ():
                    _complete(document["paths"][prefix + route.path][verb.lower()], route, verb)
    add_problem_schema(document)
    for name, example in json.loads(_EXAMPLES.read_bytes()).items():
        if name in schemas:
            schemas[name]["examples"] = [example]
    _local_times(schemas)
    return document


def _local_times(shape: Any) -> None:
    """Times of day are local; JSON Schema's format `time` requires a zone."""
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
    problems = dict(_ALWAYS)
    if permission is not None:
        operation["x-permission"] = permission.value
        problems |= {"401": _GUARDED["401"]}
        if permission not in GRANTS[UserRole.ANONYMOUS]:
            operation["security"] = _SIGN_IN
            problems |= _GUARDED
    asked = {each["name"] for each in operation.get("parameters", ())}
    if "{" in route.path or asked & _ID_PARAMETERS:
        problems |= _NAMED
    if verb != "GET":
        problems |= _NAMED | _WRITES
    else:
        responses.setdefault("304", {"description": "Not modified (`If-None-Match`)."})
    if isinstance(route, IdempotentRoute) and route.is_idempotent:
        operation.setdefault("parameters", []).append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "minLength": 1, "maxLength": 200},
            }
        )
    if route.path.endswith("/images"):
        problems |= _UPLOADS
    if "/sensors/" in route.path:
        problems |= _OPTIONAL
    for status, words in problems.items():
        responses[status] = {"description": words}


Document = Mapping[str, Any]

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; --accent: #0c7f94 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 0 auto; padding: 1.5rem }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2.5rem; text-transform: capitalize }
a { color: var(--accent) } nav a { margin-right: .9rem; white-space: nowrap }
details { border: 1px solid var(--line); border-radius: 8px; margin: .4rem 0; padding: 0 .8rem }
summary { cursor: pointer; padding: .45rem 0; overflow-wrap: anywhere }
summary b { display: inline-block; min-width: 4.2rem; font-family: ui-monospace, monospace }
.get { color: #2b7fb8 } .post { color: #2b8a57 } .put, .patch { color: #b27a12 }
.delete { color: #c94040 } .soft { opacity: .7 }
code, pre { font: 13px/1.45 ui-monospace, monospace }
pre { background: var(--soft); border-radius: 6px; padding: .6rem .8rem; overflow-x: auto }
table { border-collapse: collapse; width: 100%; margin: .4rem 0 .8rem }
td { border-top: 1px solid var(--line); padding: .3rem .8rem .3rem 0; vertical-align: top }
"""


def render_docs(document: Document) -> str:
    info = document["info"]
    groups = _groups(document)
    links = "".join(f'<a href="#{_anchor(tag)}">{escape(tag)}</a>' for tag in groups)
    parts = (
        f'<section id="{_anchor(tag)}"><h2>{escape(tag)}</h2>{"".join(calls)}</section>'
        for tag, calls in groups.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} API <span class=soft>{escape(info['version'])}</span></h1>"
        f"{_prose(info.get('description', ''))}"
        '<p>For programs: <a href="openapi.json">openapi.json</a> (OpenAPI '
        f"{escape(document['openapi'])}).</p><nav>{links}</nav>{''.join(parts)}"
        f'<section id="shapes"><h2>Shapes</h2>{"".join(_shapes(document))}</section>'
        "</body></html>"
    )


def _groups(document: Document) -> dict[str, list[str]]:
    """Operations by their first tag."""
    groups: dict[str, list[str]] = {}
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            tag = next(iter(operation.get("tags", ())), "other")
            groups.setdefault(tag, []).append(_call(document, path, verb, operation))
    return dict(sorted(groups.items()))


def _call(document: Document, path: str, verb: str, operation: Document) -> str:
    permission = operation.get("x-permission")
    needs = f"<p>Needs the permission <code>{escape(permission)}</code>.</p>" if permission else ""
    summary = operation.get("summary", "")
    return (
        f'<details id="{escape(operation["operationId"])}"><summary><b class="{verb}">'
        f"{verb.upper()}</b> <code>{escape(path)}</code> "
        f"<span class=soft>{escape(summary)}</span></summary>"
        f"{_prose(operation.get('description', ''))}{needs}"
        f"{''.join(_parameters(operation))}{''.join(_body(document, operation))}"
        f"<pre>{escape(_curl(document, path, verb, operation))}</pre>"
        f"{''.join(_responses(operation))}</details>"
    )


def _parameters(operation: Document) -> Iterator[str]:
    parameters = operation.get("parameters", ())
    if not parameters:
        return
    yield "<table>"
    for each in parameters:
        required = "" if each.get("required") else " <span class=soft>optional</span>"
        yield (
            f"<tr><td><code>{escape(each['name'])}</code>{required}<td>{escape(each['in'])}"
            f"<td>{_type(each.get('schema', {}))}<td>{_inline(each.get('description', ''))}</tr>"
        )
    yield "</table>"


def _body(document: Document, operation: Document) -> Iterator[str]:
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body: {escape(kind)}, {_type(content.get('schema', {}))}</p>"


def _responses(operation: Document) -> Iterator[str]:
    yield "<table>"
    for status, response in sorted(operation["responses"].items()):
        schemas = (content.get("schema", {}) for content in response.get("content", {}).values())
        types = ", ".join(_type(schema) for schema in schemas)
        yield f"<tr><td>{status}<td>{_inline(response.get('description', ''))}<td>{types}</tr>"
    yield "</table>"


def _shapes(document: Document) -> Iterator[str]:
    for name, schema in sorted(document.get("components", {}).get("schemas", {}).items()):
        yield f'<details id="shape-{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        yield _prose(schema.get("description", ""))
        if "enum" in schema:
            yield f"<p>{_type({**schema, 'title': None})}</p>"
        needed = set(schema.get("required", ()))
        yield "<table>"
        for field, about in schema.get("properties", {}).items():
            optional = "" if field in needed else " <span class=soft>optional</span>"
            yield (
                f"<tr><td><code>{escape(field)}</code>{optional}<td>{_type(about)}"
                f"<td>{_inline(about.get('description', ''))}</tr>"
            )
        yield "</table>"
        for example in schema.get("examples", ()):
            yield f"<pre>{escape(json.dumps(example, indent=2, ensure_ascii=False))}</pre>"
        yield "</details>"


def _type(schema: Document) -> str:
    """A schema in a few words; references are links."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#shape-{name}">{name}</a>'
    if choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(_type(each) for each in choices)
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    words = [str(schema.get("format") or schema.get("type") or "anything")]
    for key, word in (("minimum", "≥"), ("maximum", "≤"), ("maxLength", "length ≤")):
        if key in schema:
            words.append(f"{word} {schema[key]:,}")
    return escape(", ".join(words))


def _curl(document: Document, path: str, verb: str, operation: Document) -> str:
    line = "curl" if verb == "get" else f"curl -X {verb.upper()}"
    if operation.get("security"):
        line += " -H 'Authorization: Bearer TOKEN'"
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        name = content["application/json"].get("schema", {}).get("$ref", "").rpartition("/")[2]
        schema = document["components"]["schemas"].get(name, {})
        example = json.dumps(next(iter(schema.get("examples", ())), {}), ensure_ascii=False)
        quoted = example.replace("'", "'\\''")
        line += f" -H 'Content-Type: application/json' -d '{quoted}'"
    elif content:
        line += " -F file=@picture.jpg"
    return f"{line} http://127.0.0.1:8000{path}"


def _prose(text: str) -> str:
    html = []
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("* "):
            items = (_inline(item) for item in re.split(r"(?:^|\n)\* ", block) if item)
            html.append("<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>")
        elif block:
            html.append(f"<p>{_inline(block)}</p>")
    return "".join(html)


def _inline(text: str) -> str:
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", marked)


def _anchor(tag: str) -> str:
    return "calls-" + re.sub(r"\W+", "-", tag)
