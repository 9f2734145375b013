"""Secrets are hidden wherever a text may have them, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.redaction import redact, redact_value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://ada:lovelace@host:5672/v", "amqp://ada:***@host:5672/v"),
        ("no way to amqps://ada:a:b@c@host, again", "no way to amqps://ada:***@host, again"),
        ("amqp://:pw@host and 'mqtt://u:p@h'", "amqp://:***@host and 'mqtt://u:***@h'"),
        ("postgresql://h/db?user=ada&password=x%20y&port=1", None),
        ("host=h password='a b' dbname=d", "host=h password=*** dbname=d"),
        ("broker.overlay.password=lovelace", "broker.overlay.password=***"),
        ("https://h/?access_token=abc", "https://h/?access_token=***"),
    ],
)
def test_secrets_are_hidden(text: str, shown: str | None) -> None:
    expected = shown or "postgresql://h/db?user=ada&password=***&port=1"
    assert redact(text) == expected
    assert redact(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "amqp://host:5672/v",
        "amqp://ada@host",
        "http://127.0.0.1:8080/people/ada@example.org",
        "password",
        "tokens = 3 are left",
        "ada@example.org",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert redact(text) == text


@given(st.text(), st.text(alphabet=st.characters(exclude_characters="/'\"@: \t\n\r")))
def test_a_password_of_a_url_never_shows(before: str, password: str) -> None:
    hidden = f"Zx{password.strip()}xZ"
    if not any(character.isspace() for character in hidden):
        assert hidden not in redact(f"{before.replace('Zx', '')} amqp://ada:{hidden}@host/")


def test_a_value_with_a_telling_name_is_hidden() -> None:
    assert redact_value("broker.overlay.password", "lovelace") == "***"
    assert redact_value("broker.overlay.password", "") == ""
    assert redact_value("token", "abc") == "***"
    assert redact_value("neighbours", ["padres://a:b@c", "d"]) == ["padres://a:***@c", "d"]
    assert redact_value("broker.tls.key", "/etc/key.pem") == "/etc/key.pem"
    assert redact_value("port", 7) == 7
