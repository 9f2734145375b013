"""The lines of a topology file."""

from __future__ import annotations

import pytest

from penstock.cli.panda.topology import TopologyStep, parse_topology
from penstock.core.errors import ConfigurationError


def test_lines_say_when_what_who_where_and_how() -> None:
    topology = parse_topology(
        """
        # an overlay
        0    ADD     B1 127.0.0.1 startbroker -uri padres://127.0.0.1:7001/B1
        2.5  add     c  10.0.0.2  penstock sub padres://x '[class,eq,stock]'  # quoted
        0    Add     B2 10.0.0.2  startbroker -uri padres://10.0.0.2:7001/B2
        60   remove  c  10.0.0.2
        """
    )
    first = [step.id for step in topology.first_phase]
    assert first == ["B1", "B2"]
    assert topology.second_phase == [
        TopologyStep(
            2.5, True, "c", "10.0.0.2", ("penstock", "sub", "padres://x", "[class,eq,stock]")
        ),
        TopologyStep(60, False, "c", "10.0.0.2"),
    ]
    assert topology.hosts == ["127.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("0 ADD B1", "should be: TIME"),
        ("soon ADD B1 h x", "'soon' is not a time"),
        ("-1 ADD B1 h x", "'-1' is not a time"),
        ("nan ADD B1 h x", "'nan' is not a time"),
        ("0 START B1 h x", "'START' should be ADD or REMOVE"),
        ("0 ADD B1 h", "B1 has no command"),
        ("0 REMOVE B1 h x", "only"),
        ("0 REMOVE B1 h", "B1 is not on h"),
        ("0 ADD B1 h 'x", "No closing quotation"),
    ],
)
def test_a_mistake_is_named_with_its_line(line: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match="line 2: ") as raised:
        parse_topology(f"# one\n{line}\n")
    assert why in str(raised.value)


def test_one_name_is_one_process_at_a_time() -> None:
    with pytest.raises(ConfigurationError, match="line 2: B1 was added before"):
        parse_topology("0 ADD B1 h x\n0 ADD B1 other x")
    parse_topology("0 ADD B1 h x\n5 REMOVE B1 h\n6 ADD B1 other x")
