"""Users of the API: what each role sees and may do, and what is in the audit log."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from typer.testing import CliRunner

from penstock.core.errors import NotFound
from penstock.core.passwords import argon2_hasher
from penstock_jobs.commands.job import app as job_app
from penstock_jobs.http.app import create_app
from penstock_jobs.http.guard import ApiLimits
from penstock_jobs.model import JobState
from penstock_jobs.users.authenticator import JobsAuthenticator
from penstock_jobs.users.repository import JobRole, JobUser, UserRepository
from penstock_store import Database
from tests.databases import copy_of
from tests.jobs.http.conftest import URL
from tests.jobs.http.memory import MemoryJobs

NAMES = {
    "ada": JobRole.SUBMITTER,
    "bob": JobRole.SUBMITTER,
    "vic": JobRole.VIEWER,
    "olga": JobRole.OPERATOR,
}


@pytest.fixture(scope="module")
def database(embedded_template: str) -> Iterator[Database]:
    with copy_of(embedded_template) as url, Database(url) as opened:
        yield opened


@pytest.fixture
def users(database: Database) -> UserRepository:
    database.execute("TRUNCATE job_user, job_audit CASCADE")
    users = UserRepository(database)
    hashed = argon2_hasher().hash("a long password")
    for name, role in NAMES.items():
        users.add(name, hashed, role)
    return users


@pytest.fixture
def clients(users: UserRepository) -> dict[str, httpx.AsyncClient]:
    async def find_user(token: str) -> JobUser | None:
        return users.user_of_token(token)

    limits = ApiLimits(token="the server's", find_user=find_user)
    transport = httpx.ASGITransport(create_app(MemoryJobs(), limits, users))
    tokens = {name: users.new_token(name) for name in NAMES}
    tokens |= {"": "wrong", "server token": "the server's"}
    return {
        name: httpx.AsyncClient(
            transport=transport, base_url=URL, headers={"Authorization": f"Bearer {token}"}
        )
        for name, token in tokens.items()
    }


async def submit(client: httpx.AsyncClient, name: str) -> int:
    return (await client.post("/jobs", json={"type": "fake", "id": name})).status_code


async def test_each_role_sees_and_changes_what_it_may(
    clients: dict[str, httpx.AsyncClient],
) -> None:
    assert await submit(clients["ada"], "hers") == 202
    assert await submit(clients["bob"], "his") == 202
    assert await submit(clients["vic"], "none") == 403
    assert await submit(clients[""], "none") == 401

    seen = {}
    for name in NAMES:
        page = (await clients[name].get("/jobs")).json()
        seen[name] = sorted(job["id"] for job in page["jobs"])
        counts = (await clients[name].get("/counts")).json()["counts"]
        assert counts[JobState.WAITING] == page["total"] == len(seen[name])
    both = ["hers", "his"]
    assert seen == {"ada": ["hers"], "bob": ["his"], "vic": both, "olga": both}

    for path in ("", "/events", "/output", "/progress", "/result"):
        assert (await clients["ada"].get(f"/jobs/his{path}")).status_code == 404, path
    assert (await clients["ada"].get("/jobs/hers")).json()["owner"] == "ada"
    cancels = [("ada", "his", 404), ("vic", "his", 403), ("bob", "his", 200), ("olga", "hers", 200)]
    for name, job, status in cancels:
        assert (await clients[name].post(f"/jobs/{job}/cancel")).status_code == status
    assert (await clients["ada"].post("/dead-letters/replay", json={})).status_code == 403
    assert (await clients["ada"].get("/schedules")).status_code == 403

    assert (await clients["ada"].get("/audit")).status_code == 403
    log = (await clients["olga"].get("/audit", params={"job": "his"})).json()
    assert [(each["who"], each["action"]) for each in log] == [
        ("bob", "cancelled"),
        ("bob", "submitted"),
    ]


async def test_what_operators_change_is_logged_for_the_servers_token_too(
    clients: dict[str, httpx.AsyncClient],
) -> None:
    new = {"request": {"type": "fake", "duration": 0}, "every": 60}
    matrix = {"title": "River", "columns": ["CLASS", "FC"]}
    for name in ("olga", "server token"):
        assert (await clients[name].put("/schedules/probe", json=new)).status_code == 200
        assert (await clients[name].put("/matrices/river", json=matrix)).status_code == 200
        paused = await clients[name].post("/schedules/probe/pause")
        resumed = await clients[name].post("/schedules/probe/resume")
        assert [each.json()["paused"] for each in (paused, resumed)] == [True, False]
        assert (await clients["ada"].post("/schedules/probe/pause")).status_code == 403
        assert (await clients[name].delete("/schedules/probe")).status_code == 204
        assert (await clients[name].delete("/matrices/river")).status_code == 204
    assert await submit(clients["server token"], "its") == 202
    assert (await clients["ada"].delete("/schedules/probe")).status_code == 403
    assert (await clients["olga"].post("/schedules/none/pause")).status_code == 404

    log = (await clients["olga"].get("/audit")).json()
    changes = ["changed schedule", "changed matrix", "paused schedule", "resumed schedule"]
    changes += ["removed schedule", "removed matrix"]
    for name, actions in {"olga": changes, "server token": [*changes, "submitted"]}.items():
        assert [each["action"] for each in reversed(log) if each["who"] == name] == actions


async def test_sessions_end_and_refused_sign_ins_are_logged(users: UserRepository) -> None:
    gate = JobsAuthenticator()
    gate.users = users

    key = await gate.sign_in("olga", "a long password", "127.0.0.1")
    assert await gate.sign_in("olga", "a wrong password", "127.0.0.1") is None
    assert await gate.sign_in("nobody", "a long password", "127.0.0.1") is None
    assert key is not None
    found = await gate.find_user(key)
    assert found is not None
    assert (found.name, sorted(found.roles)) == ("olga", ["operator"])
    await gate.sign_out(key)
    assert await gate.find_user(key) is None

    key = await gate.sign_in("ada", "a long password", "127.0.0.1")
    assert key is not None
    users.change("ada", role=JobRole.VIEWER)
    assert await gate.find_user(key) is None
    actions = [(each.who, each.action) for each in users.audit(20)]
    assert ("nobody", "sign-in refused") in actions


def test_a_user_has_tokens_of_their_own(users: UserRepository) -> None:
    first, second = users.new_token("ada", "laptop", "ada"), users.new_token("ada", "cron", "ada")
    users.new_token("bob", "laptop")
    cron, laptop = users.tokens("ada")
    assert (cron.label, laptop.label) == ("cron", "laptop")
    users.revoke_token("ada", laptop.key, "ada")
    with pytest.raises(NotFound):
        users.revoke_token("bob", cron.key, "bob")
    assert users.user_of_token(first) is None
    assert users.user_of_token(second) == JobUser("ada", JobRole.SUBMITTER)
    assert [(each.who, each.action, each.detail) for each in users.audit(2)] == [
        ("ada", "token revoked", "ada laptop"),
        ("operator", "token created", "bob laptop"),
    ]


def test_tokens_are_revoked_and_users_removed(users: UserRepository) -> None:
    token = users.new_token("ada", "laptop")
    assert users.user_of_token(token) == JobUser("ada", JobRole.SUBMITTER)
    assert users.revoke_tokens("ada", "phone") == 0
    assert users.revoke_tokens("ada", "laptop") == 1
    assert users.user_of_token(token) is None
    token = users.new_token("bob")
    users.remove("bob")
    assert users.user_of_token(token) is None
    with pytest.raises(NotFound):
        users.new_token("bob")


def test_users_are_managed_by_commands(users: UserRepository, database: Database) -> None:
    def run(*words: str) -> tuple[int, str]:
        told = CliRunner().invoke(
            job_app,
            [*words, "--database", database.url],
            env={"PENSTOCK_JOBS_PASSWORD": "12345678"},
        )
        assert told.exception is None or isinstance(told.exception, SystemExit), told.exception
        return told.exit_code, told.stdout

    assert run("user", "add", "eve", "--role", "viewer") == (0, "")
    assert run("user", "add", "fay", "--role", "queen")[0] == 2
    assert run("user", "role", "eve", "operator") == (0, "")
    assert "eve  operator" in run("user", "list")[1]
    token = run("user", "token", "eve")[1].strip()
    assert users.user_of_token(token) == JobUser("eve", JobRole.OPERATOR)
    assert run("user", "revoke", "eve")[1] == "1 tokens revoked\n"
    assert "user added" in run("audit")[1]
