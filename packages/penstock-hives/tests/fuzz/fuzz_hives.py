"""Fuzzes the hives API, without a database.

    PYTHONPATH=. python packages/penstock-hives/tests/fuzz/fuzz_hives.py -runs=1000000

Coverage-guided, by atheris. An input is a call of the API with a body in JSON. It is answered
without a socket; the database is away, so that what passes all checks is answered by 503. Any other
status from 500 on is a finding.
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["penstock_hives"]):
    import asyncio
    import json
    from typing import Any, NoReturn
    from urllib.parse import urlencode

    from penstock.core.config import LogSettings
    from penstock.core.logs import configure_logs
    from penstock_hives.api.app import create_app
    from penstock_hives.identity.tokens import Identity
    from penstock_hives.people.permissions import Caller, UserRole
    from penstock_hives.resources import open_resources
    from penstock_hives.sensors.broker import SensorBroker
    from penstock_hives.settings import HivesSettings
    from penstock_store import StoreUnavailable
    from tests.fuzz_input import Choices, run_fuzzer
    from tests.fuzzed_application import FuzzedApplication

LOOP = asyncio.new_event_loop()
configure_logs(LogSettings(level="error"))


class Names:
    async def verify(self, token: str) -> Identity:
        return Identity(token)


def make_app() -> Any:
    settings = HivesSettings(database="postgresql://nowhere/", rate_known=1e9, rate_anonymous=1e9)
    opened = open_resources(settings, Names(), broker=SensorBroker(None, None))
    resources = LOOP.run_until_complete(opened.__aenter__())

    def away() -> NoReturn:
        raise StoreUnavailable("the database is away")

    async def caller(uid: str) -> Caller:
        return Caller(1, uid, UserRole.ADMIN, "premium")

    pool: Any = resources.pool
    pool.transaction = pool.join_transaction = away
    users: Any = resources.services.users
    users.caller = caller
    return create_app(resources)


APP = make_app()
FUZZED = FuzzedApplication(LOOP, APP)
DOCUMENT = APP.openapi()
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = tuple(
    (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
)
WRITING = tuple(each for each in OPERATIONS if "requestBody" in each[2])


def fuzz_call(choices: Choices) -> None:
    method, path, operation = choices.one_of(WRITING if choices.number(4) else OPERATIONS)
    path = "/".join(
        choices.one_of(("1", "2", "x", "-1", "9" * 30)) if part.startswith("{") else part
        for part in path.split("/")
    )
    query = urlencode(
        {
            each["name"]: str(choices.of_schema(each["schema"], SCHEMAS))
            for each in operation.get("parameters", ())
            if each["in"] == "query" and choices.number(3)
        },
        errors="replace",
    )
    content = operation.get("requestBody", {}).get("content", {})
    body = choices.rest()
    if "application/json" in content:
        choices = Choices(body)
        body = json.dumps(
            choices.of_schema(content["application/json"]["schema"], SCHEMAS)
        ).encode()
    headers = {"host": "127.0.0.1", "content-type": next(iter(content), "application/json")}
    if choices.number(8) != 1:
        headers["authorization"] = "Bearer root"
    status = FUZZED.call(method, path, query, headers, body)
    assert status < 500 or status in (501, 503), f"{method} {path}?{query} {body!r}: {status}"


def fuzz(data: bytes) -> None:
    fuzz_call(Choices(data))


if __name__ == "__main__":
    run_fuzzer(fuzz)
