"""Fuzzes requests and responses of jobs as XML, MIME and JSON, and times.

    PYTHONPATH=.:packages/penstock-jobs python packages/penstock-jobs/tests/fuzz/fuzz_job_formats.py

Coverage-guided, by atheris. An input is one choice of a reader and a text, of whose bytes some are
names of the format. A reader may refuse it by the error it promises; anything else is a finding.
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["penstock_jobs.formats"]):
    from contextlib import suppress

    from penstock.core.errors import PenstockError
    from penstock_jobs.formats import read_request, read_response, write_request, write_response
    from penstock_jobs.formats.xml import parse_time
    from tests.fuzz_input import Choices, compose_text, run_fuzzer
    from tests.jobs.fuzzed_words import XML_WORDS

KEYS = (
    *("id", "type", "duration", "interval", "dataset", "columns", "agings", "models", "results"),
    *("progress", "start", "end", "error", "name", "value", "values", "trials", "confidence"),
)
WORDS = ("a1", "fake", "build_models", "predict_models", "2026-05-31T12:00:00Z", "é", "\x00", "-1")


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


TARGETS = (fuzz_xml, fuzz_bytes, fuzz_json, fuzz_time)


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    choices.one_of(TARGETS)(choices)


if __name__ == "__main__":
    run_fuzzer(fuzz)
