"""`/hives/export/{id}`: a hive's hours as a file for a spreadsheet, by its own clock.

`from` and `to` are days; without them it is the last four weeks.
"""

from __future__ import annotations

import csv
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, time, timedelta
from io import StringIO
from typing import Final
from zoneinfo import ZoneInfo

from starlette.responses import PlainTextResponse, Response

from penstock.core.errors import AccessRefused, NotFound
from penstock.hives.app.domain.analytics import Bucket
from penstock.web.hives.office import Office
from penstock.web.pages import Visit

_DAYS: Final = 28
_MOST_DAYS: Final = 400
COLUMNS: Final = ("hour", "entries", "exits", "mean_occupancy", "peak")


def export(office: Office) -> Callable[[Visit], Awaitable[Response]]:
    async def answer(visit: Visit) -> Response:
        try:
            caller, hive = await office.hive(visit)
            begin, end = _days(visit, office.resources.clock().date())
        except NotFound as error:
            return PlainTextResponse(str(error), 404)
        except AccessRefused as error:
            return PlainTextResponse(str(error), 403)
        except ValueError as error:
            return PlainTextResponse(str(error), 422)
        zone = ZoneInfo(hive.time_zone)
        series = await office.services.analytics.series(
            caller, [hive.id], _moment(begin, zone), _moment(end, zone), Bucket.HOUR
        )
        text = StringIO()
        writer = csv.writer(text)
        writer.writerow(COLUMNS)
        for each in series:
            mean = None if each.mean is None else round(each.mean, 2)
            writer.writerow((each.bucket, each.entries, each.exits, mean, each.peak))
        name = f"hive-{hive.id}-{begin}-{end}.csv"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(text.getvalue(), 200, headers, "text/csv; charset=utf-8")

    return answer


def _days(visit: Visit, today: date) -> tuple[date, date]:
    end = date.fromisoformat(visit.query.get("to", str(today + timedelta(days=1))))
    begin = date.fromisoformat(visit.query.get("from", str(end - timedelta(days=_DAYS))))
    if not 0 < (end - begin).days <= _MOST_DAYS:
        raise ValueError(f"from is before to, by at most {_MOST_DAYS} days")
    return begin, end


def _moment(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)
