"""Topics and routing keys name the same sensor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.sensors.protocol import (
    MalformedFrame,
    RejectReason,
    SensorMessageKind,
    SensorTopic,
)
from penstock_hives.sensors.protocol.topic import command_topic, parse_command_topic

serials = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


@given(serials, st.sampled_from(SensorMessageKind))
def test_topic_and_routing_key_are_two_spellings_of_one_name(
    serial: str, kind: SensorMessageKind
) -> None:
    name = SensorTopic(serial, kind)
    assert SensorTopic.parse(name.topic) == name
    assert SensorTopic.parse(name.routing_key) == name
    assert name.topic.replace("/", ".") == name.routing_key


@pytest.mark.parametrize(
    "name",
    [
        "",
        "sensors",
        "sensors/7",
        "sensors/7/weather",
        "sensors/7.report",
        "sensors//report",
        "sensors/a b/report",
        "sensors/7/report/again",
        "/sensors/7/report",
        "sensors/7/report\n",
    ],
)
def test_other_names_are_of_no_sensor(name: str) -> None:
    with pytest.raises(MalformedFrame) as caught:
        SensorTopic.parse(name)
    assert caught.value.reason is RejectReason.UNKNOWN_TOPIC


@given(serials)
def test_a_command_names_its_sensor(serial: str) -> None:
    assert parse_command_topic(command_topic(serial)) == serial
    assert parse_command_topic(command_topic(serial).replace("/", ".")) == serial
