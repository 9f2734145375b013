"""Nothing that believes a stranger can be turned on in production."""

from __future__ import annotations

from pathlib import Path

import pytest
from appstoreserverlibrary.models.Environment import Environment

from penstock.core.errors import ConfigurationError
from penstock_hives.billing.apple import verifier_for
from penstock_hives.billing.development import DevelopmentProvider
from penstock_hives.identity.service import open_identity
from penstock_hives.identity.settings import IdentitySettings


async def opened(settings: IdentitySettings, environment: dict[str, str]) -> None:
    async with open_identity(settings, production=True, environment=environment):
        pass


async def test_firebases_emulator_mode_stops_the_start() -> None:
    settings = IdentitySettings(issuer="firebase", project="bees")
    await opened(settings, {})
    with pytest.raises(ConfigurationError, match="FIREBASE_AUTH_EMULATOR_HOST"):
        await opened(settings, {"FIREBASE_AUTH_EMULATOR_HOST": "127.0.0.1:9099"})


async def test_keys_over_plain_http_stop_the_start() -> None:
    settings = IdentitySettings(issuer="firebase", project="bees", keys="http://127.0.0.1:1/keys")
    with pytest.raises(ConfigurationError, match="https"):
        await opened(settings, {})


def test_keys_over_plain_http_from_elsewhere_are_no_configuration_at_all() -> None:
    with pytest.raises(ValueError, match="https"):
        IdentitySettings(issuer="firebase", project="bees", keys="http://keys.example/")


async def test_letters_in_files_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="MAIL"):
        await opened(IdentitySettings(folder=tmp_path), {})
    await opened(IdentitySettings(folder=tmp_path, mail="smtp://mail.example"), {})


async def test_a_password_set_over_plain_http_stops_the_start(tmp_path: Path) -> None:
    def given(link: str) -> IdentitySettings:
        return IdentitySettings(folder=tmp_path, mail="smtp://mail.example", reset_link=link)

    with pytest.raises(ConfigurationError, match="RESET_LINK"):
        await opened(given("http://bees.example/#reset="), {})
    await opened(given("https://bees.example/#reset="), {})


@pytest.mark.parametrize("environment", [Environment.XCODE, Environment.LOCAL_TESTING])
def test_apples_unsigned_environments_stop_the_start(environment: Environment) -> None:
    with pytest.raises(ConfigurationError, match="not signed"):
        verifier_for("app.bees", 7, environment.value, [b"root"], production=True)


def test_the_test_provider_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="not allowed in production"):
        DevelopmentProvider(production=True)
