"""One site for all tests of the public page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.databases import copy_of
from tests.fixtures import running
from tests.hives.app.sites import furnish
from tests.peers import Penstock
from tests.web.browsing import serving
from tests.web.hives.public_site import HIVES, Site, listening
from tests.web.hives.screens import SCREENS, on_screen


@pytest.fixture(scope="session", params=SCREENS)
def site(
    embedded_template: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("site")
    words = ("-m", "penstock", "hives", "serve", "--port", "0", "--workers", "1")
    with (
        on_screen(request.param),
        pytest.MonkeyPatch.context() as environment,
        running(Penstock(folder / "broker")) as broker,
        copy_of(embedded_template) as database,
    ):
        furnish(database, HIVES)
        # Tests sign in more often than people do, and have push services of their own.
        environment.setenv("PENSTOCK_HIVES_RATE_ANONYMOUS", "1000")
        environment.setenv("PENSTOCK_HIVES_RATE_ACCOUNTS", "100000")
        environment.setenv("PENSTOCK_HIVES_PUSH_LOCAL", "true")
        settings = folder / "site.toml"
        settings.write_text("[site]\nrefresh = 2.0\n")  # what is changed is soon shown
        reaching = (
            "--site",
            str(settings),
            "--url",
            broker.url,
            "--database",
            database,
            "--data",
            str(folder),
        )
        with serving(*words, *reaching, "--stop-with-stdin") as url:
            listening(url)
            yield Site(url, broker.url, database, folder, count(2))
