"""Users of a running Penstock, as an administrator makes them over the management API."""

from __future__ import annotations

from typing import Any

import httpx

from tests.peers import Penstock

SECRET = "secret"
EVERYTHING = ".*"


class Users:
    """A change holds when the call returns."""

    def __init__(self, broker: Penstock) -> None:
        self._http = httpx.Client(base_url=broker.http_url, auth=("guest", "guest"), timeout=30)

    def close(self) -> None:
        self._http.close()

    def add(self, name: str, **fields: str) -> tuple[str, str]:
        """A user who may do everything so far; what it logs in with."""
        self._put(f"/api/users/{name}", password=SECRET, tags="", **fields)
        self.permit(name, EVERYTHING, EVERYTHING, EVERYTHING)
        return name, SECRET

    def permit(self, name: str, configure: str, write: str, read: str) -> None:
        self._put(f"/api/permissions/%2F/{name}", configure=configure, write=write, read=read)

    def permit_topics(self, name: str, write: str, read: str) -> None:
        """Patterns of routing keys: a topic's levels are separated by dots in them."""
        self._put(
            f"/api/topic-permissions/%2F/{name}", exchange="amq.topic", write=write, read=read
        )

    def forbid(self, name: str) -> None:
        self._http.delete(f"/api/permissions/%2F/{name}").raise_for_status()

    def delete(self, name: str) -> None:
        self._http.delete(f"/api/users/{name}").raise_for_status()

    def _put(self, path: str, **body: Any) -> None:
        self._http.put(path, json=body).raise_for_status()
