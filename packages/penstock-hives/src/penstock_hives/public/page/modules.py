"""The modules of the page as they are served: those of the first view are one file.

Each file costs a phone a round trip, as a browser asks for few at a time. What `page.js` imports is
in `first.js`, each module in a scope of its own; `page.js` and the modules that are loaded later
take from there what they import. The files in this folder are modules as any other, and imports and
exports are written as `_IMPORT` and `_EXPORT` read them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

ENTRY: Final = "page"
FIRST: Final = "first"
_IMPORT: Final = re.compile(r'^import \{([^}]+)\} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (const|async function|function|class) (\w+)", re.MULTILINE)
_OTHER: Final = re.compile(r"^(import|export)\b.*", re.MULTILINE)


def join_modules(modules: Mapping[str, str]) -> dict[str, str]:
    """By name, without those that are in `first`."""
    found = _imported(modules, ENTRY)
    scopes = "".join(_scope(name, modules[name]) for name in found)
    exported = ", ".join(f"${name}" for name in found)
    joined = {FIRST: f"{scopes}export {{ {exported} }};\n"}
    for name, text in modules.items():
        if name not in found:
            joined[name] = _IMPORT.sub(lambda each: _linked(each, found), text)
    return joined


def _imported(modules: Mapping[str, str], name: str) -> list[str]:
    """What it imports, each after what that imports."""
    order: list[str] = []
    for _, other in _IMPORT.findall(modules[name]):
        if other in modules:
            order += [*_imported(modules, other), other]
    return list(dict.fromkeys(order))


def _scope(name: str, text: str) -> str:
    exported = ", ".join(each for _, each in _EXPORT.findall(text))
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(lambda each: _taken(each), text))
    if other := _OTHER.search(body):
        raise ValueError(f"{name}.js: {other[0]!r} is not an import or export of a name")
    return f"const ${name} = await (async () => {{\n{body}return {{ {exported} }};\n}})();\n"


def _taken(found: re.Match[str]) -> str:
    return f"const {{{found[1].replace(' as ', ': ')}}} = ${found[2]};"


def _linked(found: re.Match[str], first: Collection[str]) -> str:
    if found[2] not in first:
        return found[0]
    return f'import {{ ${found[2]} }} from "./{FIRST}.js"; {_taken(found)}'
