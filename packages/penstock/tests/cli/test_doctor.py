"""`penstock doctor`: each check finds what it is for, and says what to do."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli import doctor
from penstock.cli.doctor import Finding
from penstock.core.config import BrokerSettings, Settings, TlsSettings
from penstock.core.data_directory import FileLock
from penstock.core.settings_model import build_settings
from tests.cli.command import run
from tests.client.test_tls import write_certificate

Check = Callable[[Settings], Iterator[Finding]]


def findings(check: Check, data: Path, **broker: object) -> list[Finding]:
    settings = Settings(data=data, broker=build_settings(BrokerSettings, broker))
    found = list(check(settings))
    assert all(each.advice for each in found if each.verdict != "ok")
    return found


def test_a_port_in_use_is_found(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        [taken, free] = findings(
            doctor.check_ports,
            tmp_path,
            listen=[f"amqp://127.0.0.1:{port}", "mqtt://127.0.0.1:0"],
        )
    assert (taken.verdict, free.verdict) == ("failed", "ok")
    assert "the port is in use" in taken.detail


def test_a_running_broker_is_not_a_problem(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "broker.lock")
    assert lock.acquire()
    [found] = findings(doctor.check_ports, tmp_path, listen=["amqp://127.0.0.1:1"])
    lock.release()
    assert found.verdict == "ok"
    assert "a broker runs" in found.detail


def test_a_directory_that_others_can_read_is_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    verdicts = [each.verdict for each in findings(doctor.check_data_directory, tmp_path)]
    assert verdicts == ["ok", "failed"]
    tmp_path.chmod(0o700)
    assert {each.verdict for each in findings(doctor.check_data_directory, tmp_path)} == {"ok"}
    assert not (tmp_path / "new").exists()
    assert len(findings(doctor.check_data_directory, tmp_path / "new")) == 2
    assert not (tmp_path / "new").exists()


def test_a_full_disk_is_found(tmp_path: Path) -> None:
    [disk, _] = findings(doctor.check_data_directory, tmp_path, disk_free_limit="1000TiB")
    assert disk.verdict == "failed"


def test_certificates(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    tls = TlsSettings(certificate=certificate, key=key)
    [found] = findings(doctor.check_certificates, tmp_path, tls=tls)
    assert "is valid for" in found.detail or "has expired" in found.detail
    certificate.write_text("no certificate")
    [found] = findings(doctor.check_certificates, tmp_path, tls=tls)
    assert found.verdict == "failed"
    assert findings(doctor.check_certificates, tmp_path) == []


def test_another_version_of_a_package_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other:
        metadata = {"Name": "penstock-hives"}  # noqa: RUF012
        version = "0.0.1"

    monkeypatch.setattr(doctor, "distributions", lambda: [Other])
    [_, found] = findings(doctor.check_versions, tmp_path)
    assert (found.verdict, found.detail) == (
        "failed",
        f"penstock-hives is 0.0.1, penstock is {__version__}",
    )


def test_the_command_prints_a_line_per_check_and_fails_with_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    options = ("doctor", "--json", "--data", tmp_path, "--listen", "amqp://0.0.0.0:0")
    shown = run(*options)
    assert shown.returncode == 1
    found = {each["check"]: each["verdict"] for each in json.loads(shown.stdout)}
    assert found["data"] == "failed"
    assert found["exposure"] == "warning"
    assert {"version", "open files", "memory", "disk", "ports"} <= set(found)
    assert not list(tmp_path.iterdir())  # nothing was changed
