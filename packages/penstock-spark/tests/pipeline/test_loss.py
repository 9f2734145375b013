"""Batches of streams that retention has taken the beginning of, on both brokers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from tests.pipeline.conftest import Reader
from tests.pipeline.given import SMALL, declare, overflow


def test_a_batch_that_asks_for_what_is_gone_is_refused(reader: Reader, name: str) -> None:
    declare(reader.broker.url, name, **SMALL)
    overflow(reader.broker.url, name, beyond=0)

    with pytest.raises(AnalysisException, match="not exist any more"):
        reader.batch(name, startingOffsets=json.dumps({name: 0})).collect()


def test_earliest_is_what_there_is(reader: Reader, name: str) -> None:
    declare(reader.broker.url, name, **SMALL)
    overflow(reader.broker.url, name, beyond=0)

    offsets: list[Any] = [row.offset for row in reader.batch(name).select("offset").collect()]

    assert offsets[0] > 0
    assert offsets == sorted(offsets)
