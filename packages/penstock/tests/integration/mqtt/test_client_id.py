"""Client ids: whose session it is (sections 3.1.3.1 and 3.1.4)."""

from __future__ import annotations

import string
import uuid

import pytest

from tests.integration.mqtt.dialogue import Connect, lasting
from tests.integration.mqtt.packets import MQTT_5, Property
from tests.integration.mqtt.statements import mqtt_3, mqtt_5

LETTERS = string.digits + string.ascii_letters


@pytest.mark.parametrize("client_id", [LETTERS[:1], LETTERS[:23], LETTERS[23:46], LETTERS[39:]])
def test_a_client_id_of_up_to_23_letters_and_digits_is_allowed(
    dial: Connect, client_id: str
) -> None:
    assert dial(client_id).connect().reason == 0


@pytest.mark.parametrize("client_id", ["x" * 200, "sensors/7 (Ängström)", "a.b#c+d", "\ufeffid"])
def test_longer_and_stranger_client_ids_are_allowed_too(dial: Connect, client_id: str) -> None:
    assert dial(client_id).connect().reason == 0


def test_a_client_id_names_its_session(connect: Connect, version: int) -> None:
    mine, other = uuid.uuid4().hex, uuid.uuid4().hex
    connect(mine, **lasting(version)).disconnect()

    found = [connect(one, **lasting(version)).connack for one in (mine, other)]

    assert [connack is not None and connack.present for connack in found] == [True, False]


@mqtt_5
@pytest.mark.parametrize("clean", [True, False])
def test_who_brings_no_client_id_is_given_one(dial: Connect, clean: bool) -> None:
    first, second = dial("").connect(clean=clean), dial("").connect(clean=clean)

    given = [one.get(Property.ASSIGNED_CLIENT_IDENTIFIER) for one in (first, second)]
    assert all(given)
    assert given[0] != given[1]


@mqtt_5
def test_a_given_client_id_is_as_good_as_ones_own(dial: Connect, connect: Connect) -> None:
    anonymous = dial("")
    given = anonymous.connect(**lasting(MQTT_5)).get(Property.ASSIGNED_CLIENT_IDENTIFIER)
    anonymous.disconnect()

    again = connect(given, **lasting(MQTT_5))

    assert again.connack is not None
    assert again.connack.present


@mqtt_5
def test_who_brings_a_client_id_is_given_none(connect: Connect) -> None:
    client = connect()

    assert client.connack is not None
    assert client.connack.get(Property.ASSIGNED_CLIENT_IDENTIFIER) is None


@mqtt_3
def test_without_a_client_id_a_clean_session_is_to_be_had(dial: Connect) -> None:
    """Two of them do not take over from each other: each has a name of its own."""
    first, second = dial(""), dial("")
    assert (first.connect().reason, second.connect().reason) == (0, 0)

    assert (first.settle(), second.settle()) == ([], [])


@mqtt_3
def test_without_a_client_id_no_session_can_be_kept(dial: Connect) -> None:
    client = dial("")

    assert client.connect(clean=False).reason == 2
    assert client.end() is None


@mqtt_5
def test_the_old_connection_of_a_client_id_is_closed(connect: Connect) -> None:
    old = connect()

    connect(old.client_id)

    old.expect_refusal(0x8E)


@mqtt_3
def test_the_old_connection_of_a_client_id_is_closed_without_a_word(connect: Connect) -> None:
    old = connect()

    connect(old.client_id)

    assert old.end() is None
