"""Topics and filters, against another's reading of the standard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from penstock.client.mqtt.topics import (
    check_filter,
    check_topic,
    matches,
    without_share_prefix,
)
from penstock.core.errors import PreconditionFailed

levels = st.sampled_from(["", "a", "b", "$SYS", "long level"])
topics = st.lists(levels, min_size=1, max_size=5).map("/".join).filter(bool)
wild = st.lists(st.one_of(levels, st.just("+")), min_size=1, max_size=5)
filters = st.one_of(
    wild.map("/".join).filter(bool),
    wild.map(lambda words: "/".join([*words, "#"])),
    st.just("#"),
)


@given(filters, topics)
def test_a_filter_matches_as_others_have_it(pattern: str, topic: str) -> None:
    assert matches(pattern, topic) == topic_matches_sub(pattern, topic)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("sensors/+/report", "sensors/7/report", True),
        ("sensors/+", "sensors/7/report", False),
        ("sensors/#", "sensors", True),
        ("+/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/uptime", False),
        ("+/uptime", "$SYS/uptime", False),
        ("$SYS/#", "$SYS/uptime", True),
    ],
)
def test_the_cases_the_standard_names(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


@given(filters)
def test_whatever_is_a_filter_may_be_used(pattern: str) -> None:
    check_filter(pattern)
    check_filter(f"$share/group/{pattern}")
    assert without_share_prefix(f"$share/group/{pattern}") == pattern


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "a#", "a/#/b", "#/a", "a+", "a/+b", "null\0", "\ud800", "a" * 65536),
        *("$share/", "$share/group", "$share//a", "$share/group/", "$share/g+/a"),
        "$share/group/a#",
    ],
)
def test_what_is_no_filter_is_refused(pattern: str) -> None:
    with pytest.raises(PreconditionFailed, match="is not a valid topic filter"):
        check_filter(pattern)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "null\0"])
def test_what_is_no_topic_is_refused(topic: str) -> None:
    with pytest.raises(PreconditionFailed, match="is not a valid topic"):
        check_topic(topic)
