"""Which database: the embedded one unless a URL says otherwise."""

from __future__ import annotations

from pathlib import Path

import penstock_store
from penstock_store import EmbeddedServer
from penstock_store.migrations import HEAD
from penstock_store.schema import revisions


def test_without_a_url_it_is_the_embedded_one_for_the_length_of_the_block(grounds: Path) -> None:
    with penstock_store.open(None, grounds) as database:
        assert database.url == EmbeddedServer(grounds / "pg").running_url
        assert revisions(database.url)["store"] == HEAD

    assert EmbeddedServer(grounds / "pg").running_url is None


def test_a_url_is_used_as_it_is_and_migrated(empty: str, grounds: Path) -> None:
    with penstock_store.open(empty, grounds) as database:
        assert database.url == empty

    assert revisions(empty)["store"] == HEAD
    assert not list(grounds.iterdir())


def test_the_schema_is_left_alone_if_so_told(empty: str, grounds: Path) -> None:
    with penstock_store.open(empty, grounds, migrated=False):
        pass

    assert revisions(empty) == {}
