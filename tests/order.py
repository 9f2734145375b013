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
    "pipeline/flow/test_runner.py",
    "web/hives/test_pages.py",
    "distributions/test_wheels.py",
    "pipeline/test_stream.py",
    "store/test_embedded.py",
    "pages/test_blocks.py",
    "pipeline/test_write.py",
    "up/test_up_whole.py",
    "integration/jobs/test_history.py",
    "pipeline/test_batch.py",
    "web/jobs/test_pages.py",
    "integration/jobs/test_work.py",
    "hives/forecast/test_nightly.py",
    "integration/jobs/test_connections.py",
    "integration/mqtt/test_durability_mqtt.py",
    "pipeline/flow/test_kills.py",
    "store/test_bulk_load.py",
    "integration/jobs/test_schedules.py",
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


def longest_first(items: list[pytest.Item]) -> None:
    """Order files, and leave the order within each as it is."""
    place = {name: number for number, name in enumerate(LONGEST)}

    def key(item: pytest.Item) -> tuple[int, Path]:
        return place.get(str(item.path).rpartition("/tests/")[2], len(place)), item.path

    items.sort(key=key)
