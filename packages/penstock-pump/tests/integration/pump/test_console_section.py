"""The pump's section of the console: answered by a process of its own, as the user may."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path

import httpx
import pytest

from penstock.core.config import BrokerSettings
from penstock.server import Broker

ADMIN = ("guest", "guest")


async def test_components_and_files_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not entry_points(group="penstock.console", name="pump"):
        pytest.skip("the packages were installed before they had sections: make install")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    conf = tmp_path / "data" / "pump" / "config" / "subscribe" / "demo.toml"
    conf.parent.mkdir(parents=True)
    conf.write_text(f'broker = "amqp://127.0.0.1:1"\nstate = "{tmp_path}/state"\n')
    settings = BrokerSettings(listen=["http://127.0.0.1:0"])
    async with (
        Broker(settings, data=tmp_path / "data") as broker,
        httpx.AsyncClient(base_url=broker.addresses[0], timeout=60) as browser,
    ):
        listed = (await browser.get("/api/sections", auth=ADMIN)).json()
        assert {"name": "pump", "module": "/sections/pump.js"} in listed
        module = await browser.get("/sections/pump.js")
        assert module.headers["content-type"].startswith("text/javascript")
        assert "innerHTML" not in module.text
        assert (await browser.get("/sections/absent.js")).status_code == 404

        path = "/api/sections/pump"
        found = (await browser.get(f"{path}/components", auth=ADMIN)).json()
        assert found == [{"name": "subscribe/demo", "state": "stopped"}]
        query = "page=1&page_size=10&sort=name&name=stopped"
        page = (await browser.get(f"{path}/components?{query}", auth=ADMIN)).json()
        assert (page["items"], page["total_count"]) == (found, 1)
        absent = await browser.get(f"{path}/trace?file=a.txt", auth=ADMIN)
        assert absent.status_code in (404, 503), absent.text  # there is no stream
        assert (await browser.get(f"{path}/absent", auth=ADMIN)).status_code == 404
        # A call that changes something is not made by GET.
        assert (await browser.get(f"{path}/do-x", auth=ADMIN)).status_code == 404
        broker.users.add("ada", "ada", ("management",))
        assert (await browser.get("/api/sections", auth=("ada", "ada"))).json() == []
        refused = await browser.get(f"{path}/components", auth=("ada", "ada"))
        assert refused.status_code == 401
        assert broker._management is not None
        process = broker._management._sections._process
        assert process is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
