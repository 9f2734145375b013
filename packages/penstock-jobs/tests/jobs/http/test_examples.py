"""The sample clients of the API are run where their languages are installed."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock_jobs.http.app import create_app
from penstock_jobs.http.guard import ApiLimits
from penstock_jobs.model import JobResponse
from penstock_store.http.server import serve_app
from tests.fixtures import missing
from tests.jobs.http.memory import MemoryJobs
from tests.peers import PeerMissing

EXAMPLES = Path(__file__).parents[3] / "examples"
TOKEN = "a token of the test"


@pytest.mark.parametrize("name", ["jobs.mjs", "jobs.php"])
def test_the_paths_that_examples_use_exist(name: str) -> None:
    known = {
        (verb.upper(), re.sub(r"\{.*?\}", "ID", path))
        for path, verbs in create_app(MemoryJobs()).openapi()["paths"].items()
        for verb in verbs
    }
    text = (EXAMPLES / name).read_text()
    text = re.sub(r"\$\{encodeURIComponent\(id\)\}|' \. rawurlencode\(\$id\)(?: \. ')?", "ID", text)
    used = set(re.findall(r"[`'\"](/jobs(?:/ID)?(?:/[a-z]+)?)", text))

    assert used >= {"/jobs", "/jobs/ID/result", "/jobs/ID/cancel"}
    assert used <= {path for _, path in known}


#: What tells that a language can run its client.
CLIENTS = {
    "jobs.mjs": ("node", "-e", "fetch"),
    "jobs.php": ("php", "-r", "exit(extension_loaded('curl') ? 0 : 1);"),
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_follows_a_job_to_its_result(client: str) -> None:
    program, *check = CLIENTS[client]
    if shutil.which(program) is None or subprocess.run([program, *check], check=False).returncode:
        missing(PeerMissing(f"{program} is not installed, or lacks its HTTP client"))
    command = program, str(EXAMPLES / client)
    jobs = MemoryJobs()

    async def work() -> None:
        async for record in jobs.watch_all(0):
            if not record.state.final and not record.progress:
                await jobs.change(record.id, progress=0.5)
                await jobs.finish(record.id, JobResponse(record.id, record.kind, value=[1, "ü"]))

    async def run(*words: str, **environment: str) -> tuple[int | None, bytes, bytes]:
        process = await asyncio.create_subprocess_exec(
            *(*command, *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        return await process.wait(), *await process.communicate()

    async with serve_app(create_app(jobs, ApiLimits(token=TOKEN)), "127.0.0.1", 0) as url:
        working = asyncio.create_task(work())
        async with asyncio.timeout(60):
            status, output, errors = await run(url, "fake", "1", PENSTOCK_JOBS_TOKEN=TOKEN)
            refused, _, reason = await run(url, "fake")
        working.cancel()

    assert status == 0, errors
    assert json.loads(output)["value"] == [1, "ü"]
    assert b"done 100 %" in errors
    assert (refused, reason.startswith(b"401 ")) == (1, True)
