"""Reports on their way back: sent, and never in the way of the file they are about."""

from __future__ import annotations

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.pump.flow.announcing import Announcing
from penstock.pump.outcome import Outcome
from penstock.pump.plugins import Plugins
from penstock.pump.posts.post import Post
from penstock.pump.posts.reports import Report

log = get_logger(__name__)


class Reporting:
    """Keeps `Told`."""

    def __init__(
        self,
        announcing: Announcing,
        host: str,
        user: str,
        reader: str = "",
        plugins: Plugins | None = None,
    ) -> None:
        self._announcing = announcing
        self._host = host
        self._user = user
        self._reader = reader
        self._plugins = plugins or Plugins()

    async def __call__(self, post: Post, outcome: Outcome, seconds: float) -> None:
        told = Report(
            post, outcome.code, outcome.message, self._host, self._user, seconds, self._reader
        )
        report = self._plugins.report(told)
        if report is None:
            return
        try:
            await self._announcing.report(report)
        except PenstockError as error:
            log.warning("no report", path=post.relpath, reason=str(error))
