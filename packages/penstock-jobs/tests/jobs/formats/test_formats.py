"""One model, three forms: what is written in any of them is read as it was."""

from __future__ import annotations

import contextlib
import json as text_json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from penstock_jobs.errors import JobFormatError
from penstock_jobs.formats import (
    MessageFormat,
    json,
    read_request,
    read_response,
    write_request,
    write_response,
    xml,
)
from penstock_jobs.model import BuildModels, Fake, JobRequest, JobResponse, PredictModels
from tests.jobs.formats.models import requests, responses

SCHEMA = etree.XMLSchema(
    etree.fromstring(files("penstock_jobs.formats").joinpath("ichnaea.xsd").read_bytes())
)
JSON_SCHEMA = json.schema()


def valid_json(kind: str) -> Any:
    names = {"request": ["Fake", "BuildModels", "PredictModels"], "response": ["JobResponse"]}[kind]
    choices = [{"$ref": f"#/$defs/{name}"} for name in names]
    return jsonschema.Draft202012Validator({"anyOf": choices, "$defs": JSON_SCHEMA["$defs"]})


@given(requests, st.sampled_from([MessageFormat.JSON, MessageFormat.XML]))
def test_a_request_is_read_as_it_was_written(request: JobRequest, form: MessageFormat) -> None:
    assert read_request(write_request(request, form).body)[0] == request


@given(responses(), st.sampled_from([MessageFormat.JSON, MessageFormat.XML]))
def test_a_response_is_read_as_it_was_written(response: JobResponse, form: MessageFormat) -> None:
    assert read_response(write_response(response, form).body)[0] == response


@given(requests)
def test_both_schemas_accept_every_request(request: JobRequest) -> None:
    SCHEMA.assertValid(etree.fromstring(xml.write_request(request)))
    valid_json("request").validate(text_json.loads(json.write_request(request)))


@given(responses())
def test_both_schemas_accept_every_response(response: JobResponse) -> None:
    SCHEMA.assertValid(etree.fromstring(xml.write_response(response)))
    valid_json("response").validate(text_json.loads(json.write_response(response)))


@pytest.mark.parametrize(
    ("in_xml", "in_json"),
    [
        ('<request type="fake"/>', {"type": "fake"}),
        ('<request id="" type="fake"/>', {"id": "", "type": "fake"}),
        ('<request id="1"/>', {"id": "1"}),
        ('<request id="1" type="bake"/>', {"id": "1", "type": "bake"}),
        (
            '<request id="1" type="fake" duration="-1"/>',
            {"id": "1", "type": "fake", "duration": -1},
        ),
        ('<request id="1" type="fake" interval="0"/>', {"id": "1", "type": "fake", "interval": 0}),
        (
            '<request id="1" type="fake" duration="soon"/>',
            {"id": "1", "type": "fake", "duration": "soon"},
        ),
        (
            '<request id="1" type="build_models"><agings><column name="a"><aging><trial>'
            "<value key='0'>x</value></trial></aging></column></agings></request>",
            {"id": "1", "type": "build_models", "agings": {"a": [{"trials": [[[0, "x"]]]}]}},
        ),
    ],
)
def test_both_schemas_and_both_readers_refuse_the_same_requests(in_xml: str, in_json: Any) -> None:
    assert not SCHEMA.validate(etree.fromstring(in_xml))
    assert not valid_json("request").is_valid(in_json)
    with pytest.raises(JobFormatError):
        read_request(in_xml.encode())
    with pytest.raises(JobFormatError):
        read_request(text_json.dumps(in_json).encode())


@pytest.mark.parametrize(
    ("in_xml", "in_json"),
    [
        ('<response id="1" type="fake" progress="2"/>', {"id": "1", "type": "fake", "progress": 2}),
        ('<response id="1" type="fake" start="now"/>', {"id": "1", "type": "fake", "start": "now"}),
        (
            '<response id="1" type="predict_models"><result name="E" totalSamples="-1" '
            'predictedSamples="0"/></response>',
            {
                "id": "1",
                "type": "predict_models",
                "results": [{"name": "E", "total_samples": -1, "predicted_samples": 0}],
            },
        ),
    ],
)
def test_both_readers_refuse_the_same_responses(in_xml: str, in_json: Any) -> None:
    assert not SCHEMA.validate(etree.fromstring(in_xml))
    with pytest.raises(JobFormatError):
        read_response(in_xml.encode())
    with pytest.raises(JobFormatError):
        read_response(text_json.dumps(in_json).encode())


def test_a_name_that_is_not_known_is_told() -> None:
    with pytest.raises(JobFormatError, match="duraton"):
        read_request(b'{"id": "1", "type": "fake", "duraton": 3}')


def test_what_goes_as_which_content_type() -> None:
    def kind(written: Any) -> str:
        return str(written.content_type)

    assert kind(write_request(Fake("1"), MessageFormat.XML)) == "text/xml"
    assert kind(write_request(BuildModels("1"), MessageFormat.XML)) == "text/xml"
    assert kind(write_request(PredictModels("1"), MessageFormat.XML)) == "multipart/mixed"
    assert kind(write_response(JobResponse("1", "fake"), MessageFormat.XML)) == "text/xml"
    assert (
        kind(write_response(JobResponse("1", "build_models"), MessageFormat.XML))
        == "multipart/mixed"
    )
    assert kind(write_request(Fake("1"))) == "application/json"


def test_a_prediction_is_bare_xml_although_labelled_otherwise() -> None:
    written = write_response(JobResponse("1", "predict_models"), MessageFormat.XML)
    assert written.content_type == "multipart/mixed"
    assert written.body.startswith(b"<response")
    assert read_response(written.body) == (JobResponse("1", "predict_models"), MessageFormat.XML)


@pytest.mark.parametrize("data", [b"", b"   ", b"hello", b"PK\x03\x04", b"[]", b"\x00" * 100])
def test_what_is_none_of_the_forms_is_refused(data: bytes) -> None:
    with pytest.raises(JobFormatError):
        read_request(data)


@given(st.binary(max_size=300), st.sampled_from([b"", b"<", b"{", b"--", b"--f\n", b"<request "]))
def test_whatever_comes_is_read_or_refused(data: bytes, start: bytes) -> None:
    for read in (read_request, read_response):
        with contextlib.suppress(JobFormatError):
            assert read(start + data)[0].id
