"""The fixture `browser`: Chromium, started once for a module of tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.fixtures import missing
from tests.peers import PeerMissing
from tests.web.browsing import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        with chromium() as opened:
            yield opened
    except PeerMissing as error:
        missing(error)
