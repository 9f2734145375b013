"""The XML of the Ichnaea clients, as their own writers make it."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from penstock_jobs.errors import JobFormatError
from penstock_jobs.formats import xml
from penstock_jobs.formats.xml import MAX_ELEMENTS, parse_xml
from penstock_jobs.model import (
    Aging,
    BuildModels,
    Fake,
    JobResponse,
    PredictModels,
    VoteResult,
)

MADRID_IN_SUMMER = timezone(timedelta(hours=2))


def test_a_fake_request() -> None:
    data = (
        b'<request duration="10.0"\n  id="java.FakeRequestApp.or18"\n interval="1.0" type="fake"/>'
    )
    assert xml.read_request(data) == Fake("java.FakeRequestApp.or18", 10.0, 1.0)


def test_a_fake_request_may_leave_out_how_long() -> None:
    assert xml.read_request(b'<request id="431" type="fake"></request>') == Fake("431", 10.0, 1.0)


def test_a_response_on_the_way() -> None:
    data = (
        b'<response id="a" type="fake" progress="0.2" start="2014-09-25T16:17:51.000+0200" '
        b'end="2014-09-25T16:18:01.000+0200" />'
    )
    response = xml.read_response(data)
    assert response.progress == 0.2
    assert not response.final
    assert response.start == datetime(2014, 9, 25, 16, 17, 51, tzinfo=MADRID_IN_SUMMER)
    assert response.end == datetime(2014, 9, 25, 16, 18, 1, tzinfo=MADRID_IN_SUMMER)


def test_a_response_without_progress_is_the_last() -> None:
    assert xml.read_response(b'<response id="1" type="fake"/>').final


def test_columns_may_have_unequal_length() -> None:
    request = xml.read_request(
        b'<request id="432" type="build_models"><dataset>'
        b'<column name="test"><value>1</value><value>2</value><value>3</value></column>'
        b'<column name="test2"><value>3</value><value> 4 </value></column>'
        b'<column name="none"/></dataset></request>'
    )
    assert isinstance(request, BuildModels)
    assert request.dataset == {"test": ("1", "2", "3"), "test2": ("3", "4"), "none": ()}


def test_agings_with_and_without_a_position() -> None:
    request = xml.read_request(
        b'<request id="1" type="build_models"><agings><column name="FC">'
        b'<aging position="0.5"><trial><value key="0">4.4</value><value key="10">40</value></trial>'
        b'<trial><value key="0">5.4</value></trial></aging><aging/></column></agings></request>'
    )
    assert isinstance(request, BuildModels)
    assert request.agings == {
        "FC": (Aging((((0.0, 4.4), (10.0, 40.0)), ((0.0, 5.4),)), 0.5), Aging(()))
    }


def test_a_prediction_with_what_separates_its_values() -> None:
    """The documents have a semicolon between two values: what stands between is not looked at."""
    response = xml.read_response(
        b'<response id="433" progress="1.0" type="predict_models"><result name="ERROR2" '
        b'predictedSamples="1" testError="0.0" totalSamples="1"><dataset/><confusionMatrix>'
        b'<column name="-1"><value>0</value>;<value>0</value></column>'
        b'<column name="1"><value>0</value><value>1</value></column></confusionMatrix>'
        b"</result></response>"
    )
    assert response.results == (VoteResult("ERROR2", 1, 1, 0.0, {}, {"-1": (0, 0), "1": (0, 1)}),)


def test_progress_of_a_prediction_has_the_two_counts_alone() -> None:
    response = JobResponse("1", "predict_models", 0.5, results=(VoteResult("ERROR", 15, 7),))
    assert xml.write_response(response) == (
        b'<response id="1" type="predict_models" progress="0.5">'
        b'<result name="ERROR" predictedSamples="7" totalSamples="15"/></response>'
    )
    assert xml.read_response(xml.write_response(response)) == response


def test_progress_of_a_script_that_predicts_has_no_scheme() -> None:
    response = JobResponse("1", "predict_models", 0.5, results=(VoteResult("", 15, 7),))
    written = xml.write_response(response)
    assert b'<result predictedSamples="7" totalSamples="15"/>' in written
    assert xml.read_response(written) == response


def test_models_are_handed_in_from_the_other_part() -> None:
    request = xml.read_request(b'<request id="1" type="predict_models"/>', b"PK")
    assert request == PredictModels("1", {}, b"PK")


def test_an_error_keeps_its_lines_and_loses_what_xml_cannot_write() -> None:
    error = 'failed: "x" <y> & z\nline two\ttabbed\r\x1b[31mred\x00'
    response = JobResponse("1", "fake", error=error)
    read = xml.read_response(xml.write_response(response))
    assert read.error == error.replace("\x1b", "\ufffd").replace("\x00", "\ufffd")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"<request", "line 1"),
        (b"<response id='1' type='fake'/>", "expected <request>"),
        (b"<request type='fake'/>", "attribute id is missing"),
        (b"<request id='1'/>", "attribute type is missing"),
        (b"<request id='1' type='dig'/>", "unknown type 'dig'"),
        (b"<request id='1' type='fake' duration='nan'/>", "duration: 'nan' is out of range"),
        (b"<request id='1' type='fake' interval='0'/>", "interval: '0' is out of range"),
        (b"<request id='1' type='fake' duration='1s'/>", "duration: '1s' is not a number"),
        (
            b"<request id='1' type='build_models'>\n<dataset><column/></dataset></request>",
            "<column> in line 2: attribute name is missing",
        ),
        (
            b"<request id='1' type='build_models'><dataset><column name='a'/>\n<column name='a'/>"
            b"</dataset></request>",
            "<column> in line 2: duplicate column 'a'",
        ),
        (
            b"<request id='1' type='build_models'><agings><column name='a'><aging><trial>\n\n"
            b"<value>4</value></trial></aging></column></agings></request>",
            "<value> in line 3: attribute key is missing",
        ),
        (b"<?xml version='1.0' encoding='klingon'?><request id='1' type='fake'/>", "encoding"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(data: bytes, what: str) -> None:
    with pytest.raises(JobFormatError) as refused:
        xml.read_request(data)
    assert what in str(refused.value)


BOMB = b"""<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;">]><request id="&c;" type="fake"/>"""
FOREIGN = b"""<!DOCTYPE request [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<request id="&x;" type="fake"/>"""
OUTSIDE = b"""<!DOCTYPE request SYSTEM "http://127.0.0.1/x.dtd"><request id="1" type="fake"/>"""


@pytest.mark.parametrize("data", [BOMB, FOREIGN, OUTSIDE], ids=["bomb", "foreign", "outside"])
def test_document_types_are_not_accepted(data: bytes) -> None:
    with pytest.raises(JobFormatError, match="document types are not accepted"):
        xml.read_request(data)


def test_an_entity_that_nobody_declared_is_refused() -> None:
    with pytest.raises(JobFormatError, match="undefined entity"):
        xml.read_request(b'<request id="&x;" type="fake"/>')


def test_depth_is_bounded() -> None:
    with pytest.raises(JobFormatError, match="deep"):
        xml.read_request(
            b"<request id='1' type='fake'>" + b"<a>" * 100 + b"</a>" * 100 + b"</request>"
        )


def test_the_number_of_elements_is_bounded() -> None:
    with pytest.raises(JobFormatError, match="more than 200,000 elements"):
        parse_xml(b"<a>" + b"<b/>" * MAX_ELEMENTS + b"</a>")


def test_a_tag_with_attributes_without_end_is_bounded() -> None:
    attributes = b" ".join(b'a%d=""' % number for number in range(600_000))
    with pytest.raises(JobFormatError, match="a tag of more than 4,194,304 bytes"):
        parse_xml(b"<a " + attributes + b"/>")


def test_text_between_elements_is_one() -> None:
    root = parse_xml(b"<a>one<b>two</b>three &amp; <!-- none -->four</a>")
    assert root.text == "onethree & four"
    assert root.children[0].text == "two"


def test_the_time_it_takes_is_in_proportion_to_the_text() -> None:
    """By processor time, of which 32 MiB of lines take less than a second; a text that is copied
    for each of its pieces takes minutes."""
    program = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
from penstock_jobs.formats.xml import parse_xml
assert len(parse_xml(b"<a>" + b"x\\n" * 2**24 + b"</a>").text) == 2**25
"""
    subprocess.run([sys.executable, "-c", program], check=True)
