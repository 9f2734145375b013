"""The site's configuration: checked as a whole, and what is wrong is told by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ConfigurationError
from penstock_hives.billing.settings import PaymentSettings
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.push.settings import PushSettings
from penstock_hives.server.configuration import read_configuration
from penstock_hives.settings import HivesSettings, read_settings

FLAGS: dict[str, dict[str, Any]] = {
    "engine": {"port": 0, "workers": None},
    "application": {"database": "postgresql:///x"},
}


def test_flags_come_before_the_file_and_the_file_before_defaults(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(
        "[engine]\nport = 9000\nworkers = 3\n[site]\nrefresh = 5\n[application]\npool_size = 3\n"
    )
    settings = read_configuration(file, FLAGS)
    assert (settings.port, settings.workers) == (0, 3)
    assert settings.options["refresh"] == 5
    assert settings.options["application"] == {"pool_size": 3, "database": "postgresql:///x"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[engine]\nworkers = 0", "workers"),
        ("[engine]\nwokers = 2", "wokers"),
        ("[site]\nrefresh = -1", "refresh"),
        ("[application]\npool_size = 'many'", "pool_size"),
        ("[application]\npool = 3", "pool"),
        ("[identity]\nissuer = 'nobody'", "issuer"),
        ("[garden]\nroses = 3", "garden"),
        ("engine = 3", "engine"),
        ("[engine", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_told_by_name(text: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=named):
        read_configuration(file, FLAGS)


def test_what_is_given_comes_before_the_environment_and_that_before_defaults() -> None:
    environ = {
        "PENSTOCK_HIVES_PUSH_CONTACT": "mailto:bees@example.org",
        "PENSTOCK_HIVES_PUSH_DAILY_CAP": "3",
        "PENSTOCK_HIVES_PUSH_SERVICES": "a.example, b.example",
    }
    settings = read_settings(
        PushSettings, {"daily_cap": 5}, defaults={"contact": "mailto:x@y"}, environ=environ
    )
    assert settings.contact == "mailto:bees@example.org"
    assert (settings.daily_cap, settings.local) == (5, False)
    assert settings.services == ["a.example", "b.example"]


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        (HivesSettings, "PENSTOCK_HIVES_POOL_SIZE", "many"),
        (PushSettings, "PENSTOCK_HIVES_PUSH_CONTACT", "nobody"),
        (IdentitySettings, "PENSTOCK_HIVES_IDENTITY_PROVIDERS", "example.org"),
        (PaymentSettings, "PENSTOCK_HIVES_PAYMENTS_PLANS", "price_1=premium"),
    ],
)
def test_a_variable_that_is_wrong_is_told_by_name(model: Any, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        read_settings(model, environ={name: value})


def test_secrets_are_not_shown() -> None:
    environ = {
        "PENSTOCK_HIVES_PAYMENTS_STRIPE_KEY": "sk_hidden",
        "PENSTOCK_HIVES_PAYMENTS_STRIPE_SECRETS": '["whsec_hidden"]',
    }
    settings = read_settings(PaymentSettings, environ=environ)
    assert settings.stripe_secrets == ["whsec_hidden"]
    assert "hidden" not in repr(settings)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read"):
        read_configuration(tmp_path / "nowhere.toml", FLAGS)
