"""Coroutine functions: as many at once as there are slots."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock_jobs.client import JobsClient
from penstock_jobs.errors import JobFailed
from penstock_jobs.executors.coroutines import CoroutineExecutor
from penstock_jobs.model import FunctionCall, JobOptions
from tests.integration.jobs.running import PATIENCE, SAMPLES, clean, working
from tests.peers import Penstock


async def test_a_thousand_jobs_that_wait_run_at_once(penstock: Penstock) -> None:
    """Each returns only when all are running."""
    clean(penstock.url)
    count = 1000
    async with asyncio.timeout(2 * PATIENCE), JobsClient(penstock.url) as client:
        async with working(penstock.url, slots=count, coroutines=True) as worker:
            jobs = [
                await client.submit(FunctionCall(f"m{n}", f"{SAMPLES}:meet", (f"m{n}", count)))
                for n in range(count)
            ]
            values = {(await job.result()).value for job in jobs}
            assert worker.types == ("fake", "call")

    assert values == {count}
    clean(penstock.url)


async def test_limits_and_plain_functions_are_told(penstock: Penstock) -> None:
    clean(penstock.url)
    async with asyncio.timeout(PATIENCE), JobsClient(penstock.url) as client:
        async with working(penstock.url, slots=4, coroutines=True):
            late = await client.submit(
                FunctionCall("late", f"{SAMPLES}:wait_long"), JobOptions(attempts=1, soft=0.2)
            )
            plain = await client.submit(FunctionCall("plain", f"{SAMPLES}:add", (1, 2)))
            cancelled = await client.submit(FunctionCall("gone", f"{SAMPLES}:wait_long"))
            async for response in cancelled:
                if response.progress == 0.5:
                    await cancelled.cancel()
            for job, text in (
                (late, "ended after 0.2 seconds"),
                (plain, "no coroutine function"),
                (cancelled, "cancelled"),
            ):
                with pytest.raises(JobFailed, match=text):
                    await job.result()
    clean(penstock.url)


def test_modules_are_imported_before_the_first_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "warm_functions.py").write_text("async def wait(): ...\n")
    CoroutineExecutor(["warm_functions:wait"])
    assert sys.modules.pop("warm_functions").wait
    with pytest.raises(ConfigurationError, match="--allow cold_functions: No module named"):
        CoroutineExecutor(["cold_functions"])
