"""Fuzzes the HTTP API of jobs: bodies in JSON, XML and forms, and queries.

    PYTHONPATH=.:packages/penstock-jobs python packages/penstock-jobs/tests/fuzz/fuzz_jobs.py

Coverage-guided, by atheris. An input is a call of the API, which is answered without a socket. It
may be refused by a status below 500; anything else is a finding.
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["penstock_jobs"]):
    import asyncio
    import json
    import logging
    from urllib.parse import urlencode

    from penstock.core.config import LogSettings
    from penstock.core.logs import configure_logs
    from penstock_jobs.http.app import create_app
    from penstock_jobs.http.guard import ApiLimits
    from tests.fuzz_input import Choices, compose_text, run_fuzzer
    from tests.fuzzed_application import FuzzedApplication
    from tests.jobs.fuzzed_words import XML_WORDS
    from tests.jobs.http.memory import MemoryJobs

FORM = (
    *('--x\r\nContent-Disposition: form-data; name="', '"\r\n\r\n', "\r\n--x--\r\n", "type"),
    *("duration", "=", "&", "%", "10", "\r\n", 'filename="a.csv"', "dataset", "a,b\n1,2\n", "fake"),
)
LOOP = asyncio.new_event_loop()
APP = create_app(MemoryJobs(), ApiLimits(hosts=frozenset({"testserver"})))
FUZZED = FuzzedApplication(LOOP, APP)
DOCUMENT = APP.openapi()
SCHEMAS = DOCUMENT["components"]["schemas"]
#: Two answer as long as somebody listens.
OPERATIONS = tuple(
    (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    if path not in ("/changes", "/jobs/{id}/progress")
    for method, operation in methods.items()
)
configure_logs(LogSettings(level="error"))
logging.getLogger("python_multipart").setLevel(logging.ERROR)


def fuzz_api(choices: Choices) -> None:
    method, path, operation = choices.one_of(OPERATIONS)
    path = "/".join(
        choices.one_of(("a1", "x", "é", "..", "0")) if part.startswith("{") else part
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
    content = operation.get("requestBody", {}).get("content", {"": {}})
    kind = choices.one_of(tuple(content))
    if kind == "application/json":
        body = json.dumps(choices.of_schema(content[kind]["schema"], SCHEMAS)).encode()
    else:
        words = XML_WORDS if "xml" in kind else FORM
        body = compose_text(choices.rest(), words).encode("utf-8", "surrogatepass")
    if kind == "multipart/form-data":
        kind += "; boundary=x"
    headers = {"host": "testserver", "content-type": kind}
    assert FUZZED.call(method, path, query, headers, body) < 500


def fuzz(data: bytes) -> None:
    fuzz_api(Choices(data))


if __name__ == "__main__":
    run_fuzzer(fuzz)
