"""Results as files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.responses import PlainTextResponse, Response

from penstock.core.errors import NotFound, PreconditionFailed
from penstock.jobs.http import answering
from penstock.jobs.http.answering import Kind
from penstock.jobs.http.desk import JobDesk
from penstock.web.pages import Visit


def file_address(id: str, kind: Kind) -> str:  # noqa: A002 - as records have it
    return f"/results/{quote(id)}?as={kind}"


def result_file(desk: Callable[[], JobDesk]) -> Callable[[Visit], Awaitable[Response]]:
    async def answer(visit: Visit) -> Response:
        try:
            kind = Kind(visit.query.get("as", Kind.JSON))
            scheme = visit.query.get("scheme", answering.SCHEME)
            found = answering.written(await desk().result(visit.parameters["id"]), kind, scheme)
        except ValueError:
            return PlainTextResponse("There is no such form of a result.", 404)
        except (NotFound, PreconditionFailed) as error:
            return PlainTextResponse(str(error), 404)
        name = quote(found.file_name)
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(found.body, media_type=found.media_type, headers=headers)

    return answer
