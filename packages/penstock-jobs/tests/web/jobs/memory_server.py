"""The jobs' pages over jobs in memory: `python -m tests.web.jobs.memory_server DIR [--gate] NAME…`.

Work is done in the same process, with few classifiers: what a page shows of it is real. Jobs of
these names are there, and over in a moment.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from penstock.cli.shutdown import stop_event
from penstock.core.errors import PenstockError
from penstock.core.passwords import argon2_hasher
from penstock_jobs.model import (
    BuildModels,
    CommandRun,
    Fake,
    JobRecord,
    JobRequest,
    JobResponse,
    JobState,
    PredictModels,
)
from penstock_jobs.science import model_file
from penstock_jobs.science.classifiers import CONFIGURATIONS
from penstock_jobs.science.decay import decay_coefficients
from penstock_jobs.science.matrix import prepare
from penstock_jobs.science.model import build, new_model, searches
from penstock_jobs.science.prediction import SourcePredictor
from penstock_jobs.science.report import prediction_result
from penstock_jobs.science.validation import calibrate
from penstock_jobs.service import JobService
from penstock_jobs.users.authenticator import JobsAuthenticator
from penstock_jobs.users.repository import (
    JobAuditEntry,
    JobRole,
    JobToken,
    JobUser,
    UserRepository,
)
from penstock_jobs.web.section import section_over
from penstock_store.dashboard.app import create_app
from penstock_store.http.server import serve_app
from tests.jobs.http.memory import MemoryJobs

FEW = [each for each in CONFIGURATIONS if each.name in ("lda", "bayes", "knn-3")]


class Workshop:
    """Does what waits, one after the other."""

    def __init__(self, jobs: MemoryJobs) -> None:
        self._jobs = jobs

    async def run(self) -> None:
        async for record in self._jobs.watch_all(0):
            if self._jobs.records[record.id].state is JobState.WAITING:
                await self._do(record)

    async def _do(self, record: JobRecord) -> None:
        request = self._jobs.requests[record.id]
        begun = datetime.now(UTC)
        await self._jobs.change(
            record.id, state=JobState.RUNNING, start=begun, attempts=1, worker="workshop"
        )
        try:
            if isinstance(request, Fake):
                await self._wait(request, begun)
            if isinstance(request, CommandRun):
                files = [f"{name}: {len(data)} bytes\n" for name, data in request.files.items()]
                self._jobs.printed[record.id] = "".join([" ".join(request.argv), "\n", *files])
            response = await asyncio.to_thread(done, request)
        except PenstockError as error:
            await self._jobs.change(record.id, state=JobState.FAILED, error=str(error))
            return
        if self._jobs.records[record.id].state is JobState.RUNNING:
            self._jobs.results[record.id] = response
            end = datetime.now(UTC)
            await self._jobs.change(record.id, state=JobState.DONE, progress=1.0, end=end)

    async def _wait(self, request: Fake, begun: datetime) -> None:
        steps = max(int(request.duration / request.interval), 1)
        end = begun + timedelta(seconds=request.duration)
        for step in range(1, steps):
            await asyncio.sleep(request.interval)
            if self._jobs.records[request.id].state is not JobState.RUNNING:
                return
            await self._jobs.change(request.id, progress=step / steps, end=end)


def done(request: JobRequest) -> JobResponse:
    if isinstance(request, BuildModels):
        model = new_model(prepare(request.dataset), decay_coefficients(request.agings))
        built = build(model, searches(configurations=FEW))
        built = replace(built, calibration=calibrate(built, samples=500))
        return JobResponse(request.id, request.type, models=model_file.save_model(built))
    if isinstance(request, PredictModels):
        samples = prepare(request.dataset)
        found = SourcePredictor(model_file.load_model(request.models)).predict(
            samples.values, samples.seasons
        )
        results = tuple(prediction_result(samples, each) for each in found.values())
        return JobResponse(request.id, request.type, results=results)
    return JobResponse(request.id, request.type)


@asynccontextmanager
async def opened(names: Sequence[str]) -> AsyncIterator[JobService]:
    jobs = MemoryJobs()
    for name in names:
        await jobs.submit(Fake(name, 0.0))
    working = asyncio.create_task(Workshop(jobs).run())
    try:
        yield jobs
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


class MemoryUsers(UserRepository):
    """Ada submits, Bob operates, Eve views; the password of each is `secret`."""

    def __init__(self) -> None:
        self._hash = argon2_hasher().hash("secret")
        self._users = {
            "ada": JobUser("ada", JobRole.SUBMITTER),
            "bob": JobUser("bob", JobRole.OPERATOR),
            "eve": JobUser("eve", JobRole.VIEWER),
        }
        self._sessions: dict[str, str] = {}
        self._tokens: list[tuple[str, JobToken]] = []
        self._entries: list[JobAuditEntry] = []

    def password_hash(self, name: str) -> str | None:
        return self._hash if name in self._users else None

    def new_session(self, name: str) -> str:
        key = secrets.token_urlsafe()
        self._sessions[key] = name
        return key

    def user_of_session(self, key: str) -> JobUser | None:
        return self._users.get(self._sessions.get(key, ""))

    def end_session(self, key: str) -> None:
        self._sessions.pop(key, None)

    def tokens(self, name: str) -> list[JobToken]:
        return [token for user, token in self._tokens if user == name]

    def new_token(self, name: str, label: str = "", who: str = "operator") -> str:
        token = JobToken(secrets.token_hex(8), label, datetime.now(UTC))
        self._tokens.append((name, token))
        self.log(who, "token created", detail=f"{name} {label}".strip())
        return f"secret of {token.key}"

    def revoke_token(self, name: str, key: str, who: str) -> None:
        self._tokens = [each for each in self._tokens if each[1].key != key]

    def log(self, who: str, action: str, job: str = "", detail: str = "") -> None:
        self._entries.insert(0, JobAuditEntry(datetime.now(UTC), who, action, job, detail))

    def audit(self, limit: int = 100, job: str | None = None) -> list[JobAuditEntry]:
        return [each for each in self._entries if job in (None, each.job)][:limit]


async def main(folder: Path, words: Sequence[str]) -> None:
    names = [word for word in words if word != "--gate"]
    gate: JobsAuthenticator | None = None
    if "--gate" in words:
        gate = JobsAuthenticator()
        gate.users = MemoryUsers()
    app = create_app([section_over(partial(opened, names), gate)], folder, gate)
    async with stop_event(with_stdin=True) as stop, serve_app(app, "127.0.0.1", 0) as url:
        print(url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
