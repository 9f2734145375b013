"""Real processes of the pool: nothing they have started outlives them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from penstock_jobs.pool.pool import PoolTask, ProcessPool


async def until(holds: Callable[[], bool]) -> None:
    """Other processes tell nobody what they have done."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_daemon_that_a_function_has_started_ends_with_it(tmp_path: Path) -> None:
    place = tmp_path / "pid"
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    pool = ProcessPool(1)
    await pool.open()
    pool_task = PoolTask(
        "tests.jobs.queue.functions:start_daemon",
        (str(place),),
        {},
        as_json=True,
        on_progress=lambda share, finish, detail: None,
        on_done=lambda value, seconds: None,
        on_failed=lambda kind, text, again: lost.set_exception(AssertionError(text)),
        on_lost=lost.set_result,
    )
    pool.submit(pool_task)
    await until(place.exists)
    pid = int(place.read_text())
    assert alive(pid)

    pool.terminate(pool_task, "it was cancelled")

    assert await lost == "it was cancelled"
    await until(lambda: not alive(pid))
    await pool.close()
