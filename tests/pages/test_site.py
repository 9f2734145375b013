"""The site builds without a warning, has every page, and a broker serves it."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from penstock.server.management import documentation
from pytest_penstock import BrokerFixture
from scripts import reference_pages
from tests.paths import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert built.returncode == 0, built.stderr
    assert "not included in the" not in built.stderr, built.stderr
    return folder


def test_a_broker_serves_the_site(
    site: Path, penstock_broker: BrokerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documentation, "site_folder", lambda: site)
    base = penstock_broker.management_url.partition("@")[2]
    with urllib.request.urlopen(f"http://{base}/docs/tutorials/mosquitto/", timeout=10) as page:
        text = page.read().decode()
        policy = page.headers["content-security-policy"]
    assert "Coming from mosquitto" in text
    assert "'sha256-" in policy
    assert "'unsafe-inline'" not in policy.partition("style-src")[0]
    for path in ("/docs/no-such-page", "/docs/..%2f..%2fmkdocs.yml", "/docs/../../etc/passwd"):
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"http://{base}{path}", timeout=10)
        assert error.value.code == 404


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_reference_pages_are_those_of_the_code(name: str) -> None:
    written = (reference_pages.FOLDER / name).read_text()
    assert written == reference_pages.PAGES[name](), "run `make docs`"
