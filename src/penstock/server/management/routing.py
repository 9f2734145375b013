"""Which handler a path leads to. Paths are data: a route is a line in a resource's table.

Paths are taken apart before they are percent-decoded, so that a virtual host named `/` is one part
of a path (`%2F`) like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from penstock.server.management.call import Call, Level
from penstock.server.management.http import Response

Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str  #: parts in braces are variable: `/api/queues/{vhost}/{name}`
    level: Level  #: what it asks of whoever calls
    handler: Handler


class Routing:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_parts: dict[int, dict[tuple[str, ...], dict[str, Route]]] = {}
        for route in routes:
            parts = tuple(route.path.strip("/").split("/"))
            paths = self._by_parts.setdefault(len(parts), {})
            paths.setdefault(parts, {})[route.method] = route

    def find(self, path: str) -> tuple[dict[str, Route], dict[str, str]] | None:
        """The routes of a path by method, and what its variable parts are; or None."""
        parts = [unquote(part) for part in path.removeprefix("/").split("/")]
        if len(parts) > 1 and not parts[-1]:
            parts.pop()
        for pattern, methods in self._by_parts.get(len(parts), {}).items():
            names = _matched(pattern, parts)
            if names is not None:
                return methods, names
        return None


def _matched(pattern: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    names: dict[str, str] = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{"):
            names[expected[1:-1]] = part
        elif expected != part:
            return None
    return names
