"""The fixture `penstock_broker`, which pytest finds by its entry point.

One broker serves a test session, on a thread of its own; each test gets a virtual host of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_penstock.broker import BrokerFixture, BrokerThread


@pytest.fixture(scope="session")
def _penstock_broker_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("penstock-broker")) as broker:
        yield broker


@pytest.fixture
def penstock_broker(_penstock_broker_thread: BrokerThread) -> Iterator[BrokerFixture]:
    """A broker with an empty virtual host: `.url`, `.mqtt_url`, `.management_url`, `.published`."""
    with _penstock_broker_thread.virtual_host() as fixture:
        yield fixture
