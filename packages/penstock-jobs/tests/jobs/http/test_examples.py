"""The sample clients of the API: JavaScript is run; of both, the paths they use exist."""

from __future__ import annotations

import asyncio
import re
import shutil
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


async def test_the_javascript_client_follows_a_job_to_its_result() -> None:
    node = shutil.which("node")
    if node is None:
        missing(PeerMissing("node is not installed"))
    jobs = MemoryJobs()

    async def work() -> None:
        async for record in jobs.watch_all(0):
            if not record.state.final and not record.progress:
                await jobs.change(record.id, progress=0.5)
                await jobs.finish(record.id, JobResponse(record.id, record.kind, value=[1, "ü"]))

    async with serve_app(create_app(jobs, ApiLimits(token=TOKEN)), "127.0.0.1", 0) as url:
        working = asyncio.create_task(work())
        process = await asyncio.create_subprocess_exec(
            node,
            str(EXAMPLES / "jobs.mjs"),
            url,
            "fake",
            "1",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PENSTOCK_JOBS_TOKEN": TOKEN},
        )
        async with asyncio.timeout(60):
            output, errors = await process.communicate()
            refused = await asyncio.create_subprocess_exec(
                node,
                str(EXAMPLES / "jobs.mjs"),
                url,
                "fake",
                stderr=asyncio.subprocess.PIPE,
                env={},
            )
            _, reason = await refused.communicate()
        working.cancel()

    assert process.returncode == 0, errors
    assert b'"value":[1,"\xc3\xbc"]' in output
    assert b"done 100 %" in errors
    assert (refused.returncode, reason.startswith(b"401 ")) == (1, True)
