"""The business pages over a database: `… business_server DIR DB BROKER [MANAGEMENT]`.

With `--open` there is no gate, and whoever looks is taken for an administrator.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from penstock.cli.shutdown import stop_event
from penstock_hives.web.section import gated
from penstock_store.dashboard.app import create_app
from penstock_store.dashboard.pages import SectionContext
from penstock_store.http.server import serve_app


async def main(asking: bool, folder: str, database: str, broker: str, management: str = "") -> None:
    around = SectionContext(Path(folder), broker, database, management or None)
    section, gate = gated(around)
    app = create_app([section], around.data, gate if asking else None)
    async with stop_event(with_stdin=True) as stop, serve_app(app, "127.0.0.1", 0) as url:
        print(url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    given = [each for each in sys.argv[1:] if each != "--open"]
    asyncio.run(main("--open" not in sys.argv, *given))
