"""The order of test files: the longest first, so that no worker is left with one at the end.

Several files run at a time, and a free worker takes the next. Files on Spark use the processors and
the others mostly wait for their servers, so they alternate. The list is from the durations of a
whole run (`pytest --durations=0`); other files follow in the order of their folders.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

LONGEST: Final = (
    "pipeline/test_write.py",
    "integration/mqtt/test_durability_mqtt.py",
    "pipeline/test_stream.py",
    "up/test_up_whole.py",
    "pipeline/test_batch.py",
    "integration/test_durability.py",
    "hives/forecast/test_nightly.py",
    "cli/test_user.py",
    "pipeline/flow/test_runner.py",
    "server/test_unauthenticated_connections.py",
    "pipeline/flow/test_kills.py",
    "up/test_up.py",
    "pipeline/test_exactly_once.py",
    "store/test_embedded.py",
    "pipeline/flow/test_replay.py",
    "cli/test_sub_mqtt.py",
    "pipeline/test_register.py",
    "store/test_bulk_load.py",
    "history/test_spark_table.py",
    "web/hives/test_pages.py",
    "integration/jobs/test_work.py",
    "integration/clients/test_celery.py",
    "distributions/test_wheels.py",
    "client/test_commands.py",
    "benchmarks/mqtt/test_smoke_mqtt.py",
    "integration/mqtt/test_crash_mqtt.py",
    "web/jobs/test_pages.py",
    "cli/test_pub_mqtt.py",
    "store/test_command.py",
    "web/jobs/test_whole.py",
    "hives/analytics/test_steps.py",
    "cli/test_padres.py",
    "store/test_database.py",
    "pipeline/flow/test_lake.py",
    "pipeline/streams/test_streams.py",
    "pipeline/lake/test_delta.py",
    "pipeline/connector/test_stream_reader.py",
    "pipeline/landing/test_land_command.py",
    "hives/occupancy/gold/test_ledger.py",
    "integration/mqtt/test_bad_peers_mqtt.py",
    "benchmarks/test_smoke.py",
    "hives/app/engine/test_engine.py",
    "integration/test_disk_full.py",
)


def longest_first(items: list[pytest.Item]) -> None:
    """Order files, and leave the order within each as it is."""
    place = {name: number for number, name in enumerate(LONGEST)}

    def key(item: pytest.Item) -> tuple[int, Path]:
        return place.get(str(item.path).rpartition("/tests/")[2], len(place)), item.path

    items.sort(key=key)
