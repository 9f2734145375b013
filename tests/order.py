"""Which files of tests begin first: the longest, so that no row waits for one at the end.

Several files run at a time, and whoever is free takes the next. Those on Spark keep the processors
busy and the others mostly wait for their servers, so they come by turns. The list is from the
durations of a whole run (`pytest --durations=0`); a file that is not in it follows in the order of
the folders, and one that is no longer there does no harm.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

LONGEST: Final = (
    "pipeline/engine/test_kills.py",
    "up/test_up_whole.py",
    "integration/mqtt/test_durability_mqtt.py",
    "hives/forecast/test_nightly.py",
    "integration/test_durability.py",
    "pipeline/engine/test_runner.py",
    "integration/mqtt/test_crash_mqtt.py",
    "pipeline/test_batch.py",
    "benchmarks/mqtt/test_smoke_mqtt.py",
    "pipeline/test_write.py",
    "integration/clients/test_celery.py",
    "pipeline/test_stream.py",
    "store/test_embedded.py",
    "pipeline/brokers/test_streams.py",
    "cli/test_sub_mqtt.py",
    "web/jobs/test_pages.py",
    "cli/test_user.py",
    "pipeline/engine/test_replay.py",
    "integration/test_disk_full.py",
    "web/hives/test_pages.py",
    "integration/pump/test_restarts.py",
    "pipeline/engine/test_lake.py",
    "up/test_up.py",
    "web/jobs/test_whole.py",
    "integration/mqtt/test_bad_peers_mqtt.py",
    "hives/steps/test_silver.py",
    "store/test_migrations.py",
    "pipeline/test_exactly_once.py",
    "server/management/test_rabbitmq.py",
    "web/hives/test_public_page.py",
)


def longest_first(items: list[pytest.Item]) -> None:
    """Order files, and leave the order within each as it is."""
    place = {name: number for number, name in enumerate(LONGEST)}

    def key(item: pytest.Item) -> tuple[int, Path]:
        return place.get(str(item.path).rpartition("/tests/")[2], len(place)), item.path

    items.sort(key=key)
