"""A process with the shell and small sections: `python -m tests.web.shell_server DIR [--gated]`.

NiceGUI's routes belong to a process, so each server that is tested is one.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from pathlib import Path

from nicegui import ui
from starlette.responses import PlainTextResponse, Response

from penstock.cli.shutdown import stop_event
from penstock.core.errors import NotFound
from penstock_store.dashboard.app import create_app
from penstock_store.dashboard.pages import (
    DashboardDownload,
    DashboardPage,
    DashboardSection,
    DashboardUser,
    PageRequest,
)
from penstock_store.http.server import serve_app

PEOPLE = {
    "ada": ("lovelace", DashboardUser("ada", "Ada", frozenset({"keeper"}))),
    "bob": ("builder", DashboardUser("bob", "Bob")),
}


class Register:
    """Two people; `revoked` is a file that takes Ada's role away while it is there.

    With a file `reset` there, nobody's session holds.
    """

    def __init__(self, folder: Path) -> None:
        self._revoked = folder / "revoked"
        self._reset = folder / "reset"
        self._sessions: dict[str, str] = {}

    async def sign_in(self, name: str, password: str, address: str) -> str | None:
        known = PEOPLE.get(name)
        if known is None or known[0] != password:
            return None
        key = secrets.token_hex()
        self._sessions[key] = name
        return key

    async def find_user(self, key: str) -> DashboardUser | None:
        name = self._sessions.get(key)
        if name is None or self._reset.exists():
            return None
        person = PEOPLE[name][1]
        return DashboardUser(person.id, person.name) if self._revoked.exists() else person

    async def sign_out(self, key: str) -> None:
        self._sessions.pop(key, None)


async def ponds(visit: PageRequest) -> None:
    ui.label(f"Ponds of {visit.user.name}")


async def pond(visit: PageRequest) -> None:
    ui.label(f"Pond {visit.parameters['name']}, depth {visit.query.get('depth', 'unknown')}")


async def dry(visit: PageRequest) -> None:
    raise NotFound("the pond has no water; open the gate")


async def vault(visit: PageRequest) -> None:
    ui.label("Gold")


async def levels(visit: PageRequest) -> Response:
    return PlainTextResponse("pond,level\nnorth,3\n")


SECTIONS = (
    DashboardSection(
        "Water",
        (
            DashboardPage("/ponds", "Ponds", "water", ponds, "Where the water is."),
            DashboardPage("/ponds/{name}", "Pond", "water", pond, in_menu=False),
            DashboardPage("/dry", "Dry pond", "grass", dry, "Where it is not."),
        ),
    ),
    DashboardSection(
        "Treasure",
        (DashboardPage("/vault", "Vault", "lock", vault, "What is kept.", role="keeper"),),
        (DashboardDownload("/levels.csv", levels, role="keeper"),),
    ),
)


async def main(folder: Path, gated: bool) -> None:
    app = create_app(SECTIONS, folder, Register(folder) if gated else None, 0.2)
    async with stop_event(with_stdin=True) as stop, serve_app(app, "127.0.0.1", 0) as url:
        print(url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), "--gated" in sys.argv))
