"""Points in time as the XML has them: `2014-09-25T16:17:51.000+0200`."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.jobs.errors import FormError


def written(time: datetime) -> str:
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    text = time.isoformat(timespec="milliseconds")
    return text[:-3] + text[-2:]  # the zone without its colon


def read(text: str) -> datetime:
    try:
        time = datetime.fromisoformat("".join(text.split()))
    except ValueError as error:
        raise FormError(f"{text!r} is not a time such as 2014-09-25T16:17:51.000+0200") from error
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
