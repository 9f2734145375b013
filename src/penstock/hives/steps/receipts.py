"""When a message was received: the broker's word, or the sender's where it knows better.

A backlog or a recording is sent at another time than its own, and says in a header when it was
received (`x-received-at`). What it says cannot be checked, but it has bounds: nothing was received
after the broker took it in, but for a few minutes between two clocks, nor years before. Beyond them
the broker's time stands, and the row says so.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.hives.sensors.sending import RECEIVED_AT

#: So far may the sender's clock be ahead of the broker's.
AHEAD: Final = timedelta(minutes=5)
#: So old may what is sent be: what a year is compared with, and the one before that.
BEHIND: Final = timedelta(days=3 * 365)
#: A message whose word was not taken has it set; a column beside those of `MESSAGES`.
DOUBTFUL: Final = "doubtful"
_DIGITS: Final = r"^\d{1,15}$"
_MOMENT: Final = pa.timestamp("us", "UTC")


def received(messages: pa.Table) -> pa.Table:
    """Messages with the time they were received, and without headers."""
    if "headers" not in messages.schema.names:
        return messages
    headers = messages["headers"].combine_chunks()
    messages = messages.drop_columns(["headers"])
    text = pc.map_lookup(headers, pa.scalar(RECEIVED_AT), "first")
    told = pc.if_else(pc.match_substring_regex(text, _DIGITS), text, None).cast(pa.int64())
    if told.null_count == len(told):
        return messages
    kept = np.asarray(messages["timestamp"].cast(_MOMENT).cast(pa.int64()))
    says, silent = np.asarray(told.fill_null(0)) * 1000, np.asarray(told.is_null())
    late, early = (int(limit / timedelta(microseconds=1)) for limit in (AHEAD, BEHIND))
    doubtful = ~silent & ((says > kept + late) | (says < kept - early))
    times = pa.array(np.where(silent | doubtful, kept, says)).cast(_MOMENT)
    place = messages.schema.get_field_index("timestamp")
    messages = messages.set_column(place, "timestamp", times)
    if doubtful.any():
        messages = messages.append_column(DOUBTFUL, pa.array(doubtful))
    return messages
