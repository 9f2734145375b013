"""PADRES' command lines, as ours."""

from __future__ import annotations

import pytest

from penstock.cli.panda.topology import parse_launch_command
from penstock.core.errors import PenstockError
from penstock.overlay.broker_uri import parse_uri


def settings(*flags: str) -> dict[str, str]:
    words = parse_launch_command(("startbroker", "-uri", "socket://10.0.0.1:7001/B1", *flags)).words
    assert words[:4] == ("penstock", "broker", "--listen", "padres://10.0.0.1:7001")
    pairs = [value.split("=", 1) for flag, value in zip(words[4::2], words[5::2], strict=True)]
    return {key.removeprefix("broker."): value for key, value in pairs}


ALWAYS = {"overlay.id": "B1", "overlay.uri": "padres://10.0.0.1:7001/B1"}


@pytest.mark.parametrize(
    ("flags", "meaning"),
    [
        ((), {}),
        (
            ("-n", "rmi://10.0.0.2:7001/B2,padres://10.0.0.3/B3"),
            {"overlay.neighbours": "padres://10.0.0.2:7001/B2,padres://10.0.0.3:5680/B3"},
        ),
        (("-rl", "5", "-rp", "2"), {"overlay.retry_limit": "5", "overlay.retry_pause": "2"}),
        (("-cy", "FIXED"), {"overlay.cycles": "FIXED"}),
        (("-s", "ACTIVE"), {"overlay.subscription_covering": "ACTIVE"}),
        (("-a", "ON"), {"overlay.advertisement_covering": "LAZY"}),
        (("-a", "OFF"), {"overlay.advertisement_covering": "OFF"}),
        (("-pubc", "OFF"), {"padres.conformance": "false"}),
        (("-h", "ON"), {"overlay.heartbeat": "true"}),
        (("-mon.bi", "ON"), {"overlay.info_interval": "20"}),
        (("-mon.bi.advsubinfo", "COUNT"), {"overlay.info_full": "false"}),
    ],
)
def test_flags_are_settings(flags: tuple[str, ...], meaning: dict[str, str]) -> None:
    assert settings(*flags) == {**ALWAYS, **meaning}


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("-n", "padres://x/B2"), "-uri"),
        (("-uri",), "no value"),
        (("-uri", "padres://x/B1", "-zz", "1"), "unknown flag -zz"),
        (("-uri", "padres://x/B1", "-h", "maybe"), "ON or OFF"),
        (("-uri", "nonsense"), "is not a broker address"),
    ],
)
def test_what_cannot_be_read_is_said(flags: tuple[str, ...], why: str) -> None:
    with pytest.raises(PenstockError, match=why):
        parse_launch_command(("startbroker", *flags))


def test_of_brokers_it_is_known_who_they_are_and_whom_they_name() -> None:
    told = parse_launch_command(("startbroker", "-uri", "padres://h:1/B1", "-n", "padres://h:2/B2"))
    assert (told.broker, told.neighbours) == (parse_uri("padres://h:1/B1"), ("B2",))
    ours = parse_launch_command(
        (
            *("penstock", "broker", "--listen", "padres://h:1", "--set", "broker.overlay.id=B1"),
            *("--set", "broker.overlay.neighbours=padres://h:2/B2,padres://h:3/B3"),
        )
    )
    assert (ours.broker, ours.neighbours) == (parse_uri("padres://h:1/B1"), ("B2", "B3"))
    assert parse_launch_command(("penstock", "sub", "padres://h:1")).broker is None
