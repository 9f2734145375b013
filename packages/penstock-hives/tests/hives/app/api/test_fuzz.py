"""Whatever is sent, within what the description allows and beyond it: no mistake of ours.

Requests are generated from the API's own description (schemathesis); half of them name things that
are there, so that they reach what lies behind. Every answer has a status the description names,
and the shape it promises.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from penstock_hives.api.app import create_app
from penstock_hives.resources import open_resources
from penstock_hives.settings import HivesSettings
from penstock_store import Database
from tests.hives.app.world import Hands, Names, Post, World

SEED = 1859
#: Statuses and shapes as described; what a status means is the other tests' affair.
PROMISES = ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]


class Served:
    """The application on a port, with an admin who belongs to a business."""

    def __init__(self, settings: HivesSettings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.url = ""
        self.ids: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60), "the application has not started"
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(60)

    async def _run(self) -> None:
        async with open_resources(
            self._settings, Names(), broker=Post(), clock=Hands()
        ) as resources:
            app = create_app(resources)
            async with self._listening(app) as client:
                world = World(client, self._database, resources, Post())
                await self._furnish(world)
                self._ready.set()

    @asynccontextmanager
    async def _listening(self, app: Any) -> AsyncIterator[httpx.AsyncClient]:
        self._server = uvicorn.Server(
            uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        )
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            serving = asyncio.create_task(self._server.serve([listener]))
            # It takes who comes before it is ready: they wait in the listener's queue.
            async with httpx.AsyncClient(base_url=self.url, timeout=60) as client:
                yield client
            await serving

    async def _furnish(self, world: World) -> None:
        """One of everything that paths name."""
        await world.user("root", "admin")
        business = await world.business()
        hive = f"/hives/{business.hive}"
        sensor = await world.make(f"{hive}/sensors", business.admin, {"serial": "fuzzed"})
        deal = {"title": "t", "kind": "event"}
        times = {"starts_at": "2026-03-01T00:00:00Z", "expires_at": "2026-05-01T00:00:00Z"}
        made = await world.make(f"{hive}/deals", business.admin, {**deal, **times})
        metric = await world.make(
            f"/accounts/{business.account}/metrics", "root", {"name": "m", "formula": "visits"}
        )
        setting = await world.make("/me/notification-settings", "root", {"kind": "deal_new"})
        message = await world.make("/messages", "root", {"type": "support", "content": "?"})
        world.status(business.hive, 5)
        self.ids = {
            "hive": business.hive,
            "account": business.account,
            "sensor": sensor["id"],
            "deal": made["id"],
            "metric": metric["id"],
            "setting": setting["id"],
            "alert": setting["id"],
            "message": message["id"],
            "user": await world.number(business.member),
            "subscription": world.subscribe("basic", user=await world.number("root")),
        }


@pytest.fixture(scope="module")
def served(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("fuzz")
    settings = HivesSettings(
        database=database.url,
        images=folder / "images",
        lake=str(folder / "lake"),
        pool_wait=30.0,
        rate_known=1e6,
        rate_anonymous=1e6,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with Served(settings, database) as served:
        yield served


def examine(served: Served, examples: int) -> str:
    schema = schemathesis.openapi.from_url(f"{served.url}/v1/openapi.json")
    checks = CHECKS.get_by_names(PROMISES)
    failed: list[str] = []
    for operation in (found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)):
        strategies = [
            operation.as_strategy(generation_mode=mode)
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        ]

        @seed(SEED)
        @hypothesis_settings(
            max_examples=examples,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=st.one_of(*strategies), real=st.booleans(), known=st.booleans())
        def holds(case: Any, real: bool, known: bool) -> None:
            leaves = case.method == "DELETE" and case.path == "/v1/me"
            if real and case.path_parameters and not leaves:
                for name in set(case.path_parameters) & set(served.ids):
                    case.path_parameters[name] = served.ids[name]
            headers = {"Authorization": "Bearer root"} if known and not leaves else {}
            answer = case.call(headers=headers, timeout=60)
            assert answer.status_code != 500, answer.text
            case.validate_response(answer, checks=checks)

        try:
            holds()
        except (Exception, BaseExceptionGroup) as error:
            failed.append(f"{operation.label}: {_reason(error)}")
    return "\n\n".join(failed)


def _reason(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return " / ".join(_reason(each) for each in error.exceptions)
    return str(error)[:1500]


@pytest.mark.timeout(600)
def test_nothing_that_is_sent_is_our_mistake(served: Served) -> None:
    problems = examine(served, examples=2)
    assert not problems, problems


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_of_much_that_is_sent_is_our_mistake(served: Served) -> None:
    problems = examine(served, examples=100)
    assert not problems, problems
