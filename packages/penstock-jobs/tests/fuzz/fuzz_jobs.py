"""Fuzzes the jobs: requests and responses as XML, MIME and JSON, data sets, and the HTTP API.

    PYTHONPATH=.:packages/penstock-jobs python packages/penstock-jobs/tests/fuzz/fuzz_jobs.py

Coverage-guided, by atheris. An input is one choice of a reader and a text, of whose bytes some are
names of the format, or a call of the API, which is answered without a socket. A reader may refuse
it by the error it promises, and the API by a status below 500; anything else is a finding.
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["penstock_jobs"]):
    import asyncio
    import json
    import logging
    from contextlib import suppress
    from urllib.parse import urlencode

    from penstock.core.config import LogSettings
    from penstock.core.errors import PenstockError
    from penstock.core.logs import configure_logs
    from penstock_jobs.formats import read_request, read_response, write_request, write_response
    from penstock_jobs.formats.xml import parse_time
    from penstock_jobs.http.app import create_app
    from penstock_jobs.http.guard import ApiLimits
    from tests.fuzz_input import Choices, call_asgi, compose_text, run_fuzzer
    from tests.jobs.http.memory import MemoryJobs

XML_WORDS = (
    *("<request ", "<response ", "</request>", "</response>", "<dataset>", "</dataset>", "/>"),
    *('id="a" ', 'type="fake" ', 'type="build_models" ', 'type="predict_models" ', 'name="x" '),
    *('duration="1" ', 'interval="0.5" ', 'progress="0.5" ', 'start="', 'end="', 'error="', "&lt;"),
    *(
        "<column ",
        "</column>",
        "<value>",
        "</value>",
        "<value ",
        "<agings>",
        "</agings>",
        "<aging ",
    ),
    *(
        "<trial>",
        "</trial>",
        "<result ",
        "</result>",
        'key="1.5" ',
        ">1.5<",
        "<!DOCTYPE x>",
        "&#0;",
    ),
    *('<?xml version="1.0" encoding="UTF-8"?>', "]]>", "<![CDATA[", "2026-05-31T12:00:00Z", "NaN"),
    *("1e999", "-1", "é", '"', ">", "9" * 30, "\r\n", "\r\n--x--", "base64"),
    "Content-Type: multipart/related; boundary=x\r\n\r\n--x\r\n",
)
KEYS = (
    *("id", "type", "duration", "interval", "dataset", "columns", "agings", "models", "results"),
    *("progress", "start", "end", "error", "name", "value", "values", "trials", "confidence"),
)
WORDS = ("a1", "fake", "build_models", "predict_models", "2026-05-31T12:00:00Z", "é", "\x00", "-1")
FORM = (
    *('--x\r\nContent-Disposition: form-data; name="', '"\r\n\r\n', "\r\n--x--\r\n", "type"),
    *("duration", "=", "&", "%", "10", "\r\n", 'filename="a.csv"', "dataset", "a,b\n1,2\n", "fake"),
)
LOOP = asyncio.new_event_loop()
APP = create_app(MemoryJobs(), ApiLimits(hosts=frozenset({"testserver"})))
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


def fuzz_xml(choices: Choices) -> None:
    _read(compose_text(choices.rest(), XML_WORDS).encode("utf-8", "surrogatepass"))


def fuzz_bytes(choices: Choices) -> None:
    _read(choices.rest())


def fuzz_json(choices: Choices) -> None:
    _read(choices.body(KEYS, WORDS))


def _read(data: bytes) -> None:
    with suppress(PenstockError):
        request, form = read_request(data)
        again, _ = read_request(write_request(request, form).body)
        assert write_request(again, form).body == write_request(request, form).body
    with suppress(PenstockError):
        response, form = read_response(data)
        again_response, _ = read_response(write_response(response, form).body)
        assert repr(again_response) == repr(response)


def fuzz_time(choices: Choices) -> None:
    with suppress(PenstockError, ValueError):
        parse_time(compose_text(choices.rest(), XML_WORDS))


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
    call = call_asgi(APP, method, path, query.encode(), headers, body)
    assert LOOP.run_until_complete(call) < 500


TARGETS = (fuzz_xml, fuzz_bytes, fuzz_json, fuzz_time, fuzz_api, fuzz_api)


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    choices.one_of(TARGETS)(choices)


if __name__ == "__main__":
    run_fuzzer(fuzz)
