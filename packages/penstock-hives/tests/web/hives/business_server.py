"""The business pages over a database: `python -m tests.web.hives.business_server DIR DB BROKER`.

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


async def main(folder: Path, database: str, broker: str, asking: bool) -> None:
    section, gate = gated(SectionContext(folder, broker, database))
    app = create_app([section], folder, gate if asking else None)
    async with stop_event(with_stdin=True) as stop, serve_app(app, "127.0.0.1", 0) as url:
        print(url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    given = sys.argv[1:4]
    asyncio.run(main(Path(given[0]), given[1], given[2], "--open" not in sys.argv))
