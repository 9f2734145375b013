"""`penstock job api` does not serve strangers."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock_jobs.commands.api import _stored_token
from tests.cli.command import run


@pytest.mark.parametrize(
    ("host", "more"),
    [("0.0.0.0", []), ("::", ["--no-token"]), ("192.0.2.1", ["--token", ""]), ("example.org", [])],
)
def test_an_address_that_others_reach_needs_a_token(
    tmp_path: Path, host: str, more: list[str]
) -> None:
    words = ("job", "api", "--host", host, "--port", "0", "--data", str(tmp_path), *more)
    ended = run(*words, cwd=tmp_path)
    assert ended.returncode == 2
    assert f"--host {host}: without a token" in ended.stderr
    assert "PENSTOCK_JOBS_TOKEN" in ended.stderr


def test_a_token_is_made_once_and_is_its_owners_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data" / "jobs.token"
    token = _stored_token(path)
    assert len(token) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert _stored_token(path) == token
    said = capsys.readouterr().err
    assert str(path) in said
    assert token not in said


def test_a_token_that_is_empty_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "jobs.token").write_text("\n")
    with pytest.raises(ConfigurationError, match="the token is empty"):
        _stored_token(tmp_path / "jobs.token")
