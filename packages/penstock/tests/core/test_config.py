"""The models alone: what they accept, what they make of it, and what they refuse."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from penstock.core.config import (
    BrokerSettings,
    LogSettings,
    Settings,
    TlsSettings,
    data_home,
    list_settings,
    setting_value,
)
from penstock.core.resources import memory_total
from penstock.core.settings_model import SettingsError, build_settings


def test_settings_built_in_python_read_nothing_from_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_BROKER__HEARTBEAT", "5")
    monkeypatch.chdir(tmp_path)
    Path("penstock.toml").write_text("[broker]\nheartbeat = 6\n")
    assert Settings().broker.heartbeat == 60


def test_a_broker_listens_on_loopback_by_default() -> None:
    schemes = [url.partition(":")[0] for url in BrokerSettings().listen]
    assert schemes == ["amqp", "mqtt", "ws", "padres", "http"]


def test_the_default_port_of_a_scheme_is_written_out() -> None:
    assert BrokerSettings(listen=["amqp://localhost"]).listen == ["amqp://localhost:5672"]


@pytest.mark.parametrize(
    ("written", "budget"),
    [("25%", 0.25), ("0.5", 0.5), ("2GiB", 2 << 30), (0.1, 0.1), (1 << 20, 1 << 20)],
)
def test_a_memory_budget_is_a_share_or_bytes(written: object, budget: float) -> None:
    assert build_settings(BrokerSettings, {"memory_budget": written}).memory_budget == budget


def test_a_share_of_memory_is_of_the_memory_there_is() -> None:
    assert BrokerSettings(memory_budget=0.5).memory_bytes == memory_total() // 2
    assert BrokerSettings(memory_budget=4096).memory_bytes == 4096


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "much", "150%%"])
def test_a_memory_budget_that_is_neither_is_refused(wrong: object) -> None:
    with pytest.raises(SettingsError, match="share of memory"):
        build_settings(BrokerSettings, {"memory_budget": wrong})


def test_settings_cannot_be_changed_under_a_running_broker() -> None:
    with pytest.raises(FrozenInstanceError):
        BrokerSettings().heartbeat = 5  # type: ignore[misc]


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(SettingsError, match="set together"):
        TlsSettings(certificate=Path("server.pem"))


def test_checking_clients_needs_an_authority() -> None:
    with pytest.raises(SettingsError, match="authority"):
        TlsSettings(certificate=Path("a"), key=Path("b"), verify_peer=True)


def test_a_tls_listener_needs_a_certificate() -> None:
    with pytest.raises(SettingsError, match=r"amqps://127.0.0.1:5671 needs tls.certificate"):
        BrokerSettings(listen=["amqps://127.0.0.1"])


def test_data_goes_to_the_data_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert data_home() == Path("/somewhere/penstock")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert data_home() == Path("/home/ada/.local/share/penstock")


def test_every_setting_is_in_the_catalogue_with_a_sentence() -> None:
    settings = list_settings()
    assert {"data", "log.level", "broker.listen", "broker.tls.key"} <= set(settings)
    assert [key for key, setting in settings.items() if not setting.description] == []


def test_the_catalogue_knows_values_and_variables() -> None:
    setting = list_settings()["broker.segment_bytes"]
    assert setting.variable == "PENSTOCK_BROKER__SEGMENT_BYTES"
    assert setting.printed(setting.default) == "64MiB"
    assert setting_value(Settings(log=LogSettings(level="debug")), "log.level") == "debug"
