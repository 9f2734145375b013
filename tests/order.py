"""The order of test files: the longest first, so that no worker is left with one at the end.

Several files run at a time, and a free worker takes the next. Files on Spark use the processors and
the others mostly wait for their servers, so they alternate. The list is from the durations of a
whole run (`pytest --durations=0`); other files follow in the order of their folders.

Some servers of the fixtures take many seconds of processor time to start. Only some workers start
them, and run the files that use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import pytest

LONGEST: Final = (
    "pages/test_blocks.py",
    "pipeline/flow/test_runner.py",
    "web/hives/test_pages.py",
    "web/jobs/test_pages.py",
    "pipeline/test_write.py",
    "store/test_embedded.py",
    "pipeline/test_stream.py",
    "up/test_up_whole.py",
    "hives/forecast/test_nightly.py",
    "distributions/test_wheels.py",
    "pipeline/flow/test_kills.py",
    "integration/jobs/test_history.py",
    "pipeline/test_batch.py",
    "integration/jobs/test_work.py",
    "integration/jobs/test_connections.py",
    "integration/mqtt/test_durability_mqtt.py",
    "store/test_bulk_load.py",
    "integration/jobs/test_schedules.py",
    "pipeline/test_oldest_spark.py",
    "pipeline/test_register.py",
    "integration/clients/test_celery.py",
    "web/hives/test_app.py",
    "pipeline/test_exactly_once.py",
    "integration/jobs/test_chapter4.py",
    "web/hives/test_app_for_everybody.py",
    "web/hives/test_pages_for_everybody.py",
    "web/hives/test_app_accounts.py",
    "pipeline/streams/test_streams.py",
    "integration/test_durability.py",
    "web/test_console.py",
    "web/test_console_pages.py",
    "pipeline/flow/test_replay.py",
    "cli/test_sub_mqtt.py",
    "benchmarks/mqtt/test_smoke_mqtt.py",
    "hives/occupancy/gold/test_shards.py",
    "web/hives/test_public_page.py",
    "up/test_up.py",
    "pipeline/connector/test_stream_reader.py",
    "integration/jobs/test_bad_input.py",
    "store/test_command.py",
    "pipeline/flow/test_faults.py",
    "web/jobs/test_whole.py",
    "store/test_database.py",
    "hives/analytics/test_steps.py",
    "cli/test_user.py",
    "server/management/test_rabbitmq.py",
    "pipeline/flow/test_lake.py",
    "integration/mqtt/test_crash_mqtt.py",
    "web/test_sections.py",
    "pipeline/test_loss.py",
    "benchmarks/test_smoke.py",
    "benchmarks/jobs/test_queues.py",
    "integration/amqp091/test_heartbeats.py",
    "server/test_tokens.py",
    "integration/mqtt/test_paho_mqtt5.py",
    "reliability/test_faults.py",
    "integration/jobs/test_dying_broker.py",
    "hives/test_schema.py",
    "integration/jobs/test_crash.py",
    "store/test_migrations.py",
)

#: Fixture → how many workers at most start its server, as long as other files are left.
COSTLY: Final = {"spark": 3, "rabbitmq": 2, "plugged_rabbitmq": 2, "embedded": 3}


def longest_first(items: list[pytest.Item]) -> None:
    """Order files, and leave the order within each as it is."""
    place = {name: number for number, name in enumerate(LONGEST)}

    def key(item: pytest.Item) -> tuple[int, Path]:
        return place.get(str(item.path).rpartition("/tests/")[2], len(place)), item.path

    items.sort(key=key)


def costly_fixtures(items: Sequence[pytest.Item]) -> set[str]:
    """Those that some of the tests use, or are parametrised with."""
    found: set[str] = set()
    for item in items:
        if isinstance(item, pytest.Function):
            found.update(item.fixturenames)
            if hasattr(item, "callspec"):
                found.update(each for each in item.callspec.params.values() if type(each) is str)
    return found & COSTLY.keys()


def choose_file(
    files: Sequence[AbstractSet[str]], ours: AbstractSet[str], others: Sequence[AbstractSet[str]]
) -> int:
    """Which file a worker takes next.

    `files` are the costly fixtures of those that are left; `ours` and `others` are the fixtures
    that this worker and the others have.
    """

    def is_open(name: str) -> bool:
        return name in ours or sum(name in each for each in others) < COSTLY[name]

    return next((number for number, need in enumerate(files) if all(map(is_open, need))), 0)
