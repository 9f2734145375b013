"""Pushes on a machine for development: a line in the log in place of a message to a phone."""

from __future__ import annotations

from penstock.core.logs import get_logger
from penstock.hives.app.push.notes import Fate, Outcome, Push

log = get_logger(__name__)


class LoggedChannel:
    async def send(self, push: Push) -> Outcome:
        log.info("push", channel=push.channel, title=push.title, body=push.body, link=push.link)
        return Outcome(Fate.SENT)

    async def close(self) -> None: ...
