"""Destination paths, and the folders that go with names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.vhost import DestinationPath, directory_name, parse_destination
from penstock.core.errors import NotFound

names = st.text(min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/queue/jobs", DestinationPath("queue", "jobs")),
        ("/stream/sensors", DestinationPath("queue", "sensors")),
        ("/queue/a%2Fb", DestinationPath("queue", "a/b")),
        ("/exchange/x", DestinationPath("exchange", "x")),
        ("/exchange/x/key.1", DestinationPath("exchange", "x", "key.1")),
        ("/exchange//jobs", DestinationPath("exchange", "", "jobs")),  # the default exchange
        ("/topic/sensors.7", DestinationPath("exchange", "amq.topic", "sensors.7")),
        ("/topic/sensors/7", DestinationPath("exchange", "amq.topic", "sensors/7")),
    ],
)
def test_what_a_path_names(path: str, expected: DestinationPath) -> None:
    assert parse_destination(path) == expected


@pytest.mark.parametrize(
    "path",
    ["", "/", "jobs", "/queue", "/queue/", "/queue/a/b", "/exchange", "/exchange/a/b/c", "/topic/",
     "/topic", "/other/a", "queue/jobs", "//queue/jobs"],
)  # fmt: skip
def test_what_names_nothing_says_what_would(path: str) -> None:
    with pytest.raises(NotFound, match="use /queue/NAME"):
        parse_destination(path)


@given(st.sampled_from(["queue", "exchange"]), names, st.text(max_size=40))
def test_every_name_can_be_written_as_a_path(kind: str, name: str, key: str) -> None:
    path = DestinationPath(kind, name, key if kind == "exchange" else "")
    assert parse_destination(str(path)) == path


@given(st.lists(st.text(max_size=300), min_size=2, max_size=2, unique=True))
def test_folders_are_short_plain_and_different(pair: list[str]) -> None:
    one, other = map(directory_name, pair)
    assert one != other
    assert all(len(each) <= 255 and "/" not in each and "." not in each for each in (one, other))
