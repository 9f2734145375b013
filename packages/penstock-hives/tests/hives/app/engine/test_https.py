"""HTTPS of the dashboards by certificate files; `test_engine.py` has that of the site."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from tests.databases import copy_of
from tests.store.test_http_server import create_certificate
from tests.web.browsing import serving


@pytest.mark.timeout(600)
def test_the_dashboards_serve_https_and_their_cookie_is_for_it(
    embedded_template: str, tmp_path: Path
) -> None:
    certificate, key = create_certificate(tmp_path)
    words = ("-m", "penstock", "dashboards", "--gate", "hives", "--only", "hives", "--port", "0")
    tls = ("--certificate", str(certificate), "--key", str(key), "--stop-with-stdin")
    with copy_of(embedded_template) as database:
        reach = ("--url", "amqp://127.0.0.1:1", "--database", database, "--data", str(tmp_path))
        with serving(*words, *tls, *reach) as url:
            assert url.startswith("https://127.0.0.1:")
            trust = ssl.create_default_context(cafile=certificate)
            answer = httpx.get(f"{url}/hives", verify=trust, timeout=60)
            with pytest.raises(httpx.TransportError):
                httpx.get(url.replace("https", "http"), timeout=60)
    assert (answer.status_code, answer.headers["location"].split("?")[0]) == (303, "/sign-in")
    assert {"secure", "httponly"} <= set(answer.headers["set-cookie"].lower().split("; "))
