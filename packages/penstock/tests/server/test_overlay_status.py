"""The brokers of an overlay as one of them knows them: whom it believes, and what of it."""

from __future__ import annotations

import pytest

from penstock.server.overlay_status import OverlayStatus
from tests.overlay.simulation import Overlay, Person

INFO = '[class,BROKER_INFO],[brokerID,"B2"];'


@pytest.fixture
def overlay() -> Overlay:
    return Overlay([("B1", "B2")])


@pytest.fixture
def federation(overlay: Overlay) -> OverlayStatus:
    federation = OverlayStatus(overlay.routers["B1"], calendar=lambda: 1000.0)
    overlay.settle()
    return federation


def telling(overlay: Overlay, name: str) -> Person:
    """Somebody at B2 who tells how brokers are."""
    person = overlay.person("B2", name)
    person.advertise("[class,eq,BROKER_INFO],[brokerID,isPresent,'']")
    overlay.settle()
    return person


def test_a_broker_is_known_by_what_it_says_of_itself(
    overlay: Overlay, federation: OverlayStatus
) -> None:
    telling(overlay, "broker").publish(INFO, payload=b'{"status": "RUNNING"}')
    overlay.settle()
    assert federation.reports() == [{"status": "RUNNING", "heard": 1000.0, "age": 0.0}]


def test_what_others_say_of_a_broker_is_not_believed(
    overlay: Overlay, federation: OverlayStatus
) -> None:
    telling(overlay, "client").publish(INFO, payload=b'{"status": "RUNNING"}')
    overlay.settle()
    assert federation.reports() == []


def test_others_are_asked_while_the_broker_is_stopped_and_not_again_when_it_is_resumed(
    overlay: Overlay, federation: OverlayStatus
) -> None:
    asked = overlay.person("B2", "asked")
    asked.subscribe("[class,eq,NETWORK_DISCOVERY]")
    overlay.settle()
    next_hops = overlay.routers["B1"].next_hops
    next_hops.stop()
    federation.reports()
    overlay.settle()
    assert len(asked.take()) == 1
    next_hops.resume()
    overlay.settle()
    assert asked.take() == []


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"{"])
def test_what_makes_no_sense_is_passed_over(
    overlay: Overlay, federation: OverlayStatus, payload: bytes
) -> None:
    telling(overlay, "broker").publish(INFO, payload=payload)
    overlay.settle()
    assert federation.reports() == []
