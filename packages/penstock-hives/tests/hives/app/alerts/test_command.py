"""`penstock hives alerts` as a process: it says when it is ready, and ends when it is told."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from penstock_hives.database import DatabasePool
from tests.hives.app.alerts.given import define
from tests.peers import Penstock

PATIENCE = 120.0


async def test_the_process_starts_and_stops(
    pool: DatabasePool, penstock: Penstock, tmp_path: Path
) -> None:
    await define(pool, 1)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", "hives", "alerts"),
        *("--url", penstock.url, "--database", pool.url, "--data", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        assert line.startswith(b"penstock hives alerts ready")
        process.terminate()
        _, told = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode == 0, told.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (tmp_path / "hives" / "vapid.pem").exists()
