"""Spans of batches for OpenTelemetry: `process STREAM`, with links to the first messages that
carry a trace context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.telemetry import message_spans

log = get_logger(__name__)

#: Messages of a batch in which contexts are looked for.
MAX_SAMPLE: Final = 1000


def batch_span(
    source: str,
    count: int,
    sample: Callable[[], Iterable[pa.Table | pa.RecordBatch]],
    **attributes: Any,
) -> AbstractContextManager[object]:
    """`sample` gives messages of the batch, with the column `headers`; it is called only if this
    process records spans."""
    spans = message_spans()
    if spans is None:
        return nullcontext()
    try:
        headers = list(_headers(sample()))
    except (PenstockError, OSError) as error:  # a batch does not fail for want of links
        log.info("no links to messages", source=source, reason=str(error))
        headers = []
    return spans.batch(source, count, headers, attributes)


def _headers(tables: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    left = MAX_SAMPLE
    for table in tables:
        if "headers" in table.schema.names:
            for pairs in table.slice(0, left).column("headers").to_pylist():
                yield dict(pairs or ())
        left -= len(table)
        if left <= 0:
            return
