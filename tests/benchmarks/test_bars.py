"""Rows of `benchmarks.bars`: ratios to the fastest peer, and whether a bar is met."""

from __future__ import annotations

import pytest

from benchmarks.bars import PROTOCOLS, Bar, limit_row, ratio_row


@pytest.mark.parametrize(("ours", "met"), [(4.0, "yes"), (4.1, "no")])
def test_the_fastest_peer_is_computed_from_the_measured_one(ours: float, met: str) -> None:
    row = ratio_row("a", ours, "rabbitmq-4", 20.0, Bar("a", "a", 2, 0.1, 3.0), 8.0)
    assert row[2:4] == ("20.00 (rabbitmq-4)", "2.00")
    assert row[-1] == met


def test_the_fastest_peer_is_also_computed_through_the_previous_release() -> None:
    row = ratio_row("a", 4.0, "rabbitmq-4", 20.0, Bar("a", "a", 2, 0.1, 3.0), 8.0)
    assert row[5] == "1.50"
    assert ratio_row("a", 4.0, "rabbitmq-4", 20.0, Bar("a", "a", 2, 0.1))[5] == ""


def test_an_older_peer_has_no_ratio() -> None:
    assert ratio_row("a", 4.0, "rabbitmq", 20.0, None)[3:] == ("", "", "", "", "")


def test_a_limit_includes_its_bar() -> None:
    assert limit_row("idle", 2.0, "kB", 2.0)[-1] == "yes"
    assert limit_row("idle", 2.01, "kB", 2.0)[-1] == "no"
    assert limit_row("idle", 2.0, "kB", None)[-1] == ""


def test_every_bar_names_a_scenario() -> None:
    for protocol in PROTOCOLS:
        assert {bar.scenario for bar in protocol.bars} <= set(protocol.scenarios)
        assert {protocol.newest, protocol.oldest} <= set(protocol.starters)
