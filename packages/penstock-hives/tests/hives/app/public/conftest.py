"""One furnished database for tests of the public's answers; what they add to it, nobody sees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases import copy_of
from tests.hives.app.sites import furnish


@pytest.fixture(scope="module")
def furnished(embedded_template: str) -> Iterator[str]:
    with copy_of(embedded_template) as url:
        furnish(url)
        yield url
