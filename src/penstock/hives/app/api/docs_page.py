"""The API's description as a page: `GET /v1/docs`, made from the OpenAPI document.

Plain HTML with its style inside: no scripts, nothing from other servers, so it is whole on a
machine without the internet. Programs read `/v1/openapi.json`, which it is made from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

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


def render(document: Document) -> str:
    """The whole page."""
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
    """Calls by the first of their tags."""
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
    """A schema in a few words; shapes are links."""
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
    """How to call it from a terminal."""
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
    """Paragraphs and lists, as our descriptions have them."""
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
