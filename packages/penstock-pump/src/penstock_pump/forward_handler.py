"""The handler of winnow and shovel, and of subscribe without a download: forwards the message.

Reports are forwarded like posts, towards the cluster that their post came from.
"""

from __future__ import annotations

from penstock.core.logs import get_logger
from penstock_pump.duplicates import DuplicateFilter
from penstock_pump.flow.message import PumpMessage
from penstock_pump.flow.publisher import PostPublisher
from penstock_pump.handlers import Provenance, with_provenance
from penstock_pump.plugins import Plugins
from penstock_pump.post_filter import PostFilter
from penstock_pump.posts import reports
from penstock_pump.posts.formats import format_of
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import REJECTED, PostOutcome, is_report_topic
from penstock_pump.selection import PostSelection

log = get_logger(__name__)


class ForwardHandler:
    """Forwards messages unchanged, byte for byte, unless a plugin changed the post or another
    format is configured. Without a filter duplicates are forwarded too."""

    def __init__(
        self,
        post_publisher: PostPublisher | None,
        selection: PostSelection,
        *,
        post_filter: PostFilter | None = None,
        provenance: Provenance | None = None,
        duplicate_filter: DuplicateFilter | None = None,
        plugins: Plugins | None = None,
        reencode: bool = False,
        form: str | None = None,
        dry_run: bool = False,
    ) -> None:
        self._post_publisher = post_publisher
        self._selection = selection
        self._post_filter = post_filter or PostFilter()
        self._provenance = provenance
        self._duplicate_filter = duplicate_filter
        self._plugins = plugins or Plugins()
        self._reencode = reencode
        self._form = form
        self._dry_run = dry_run

    async def __call__(self, post: Post, pump_message: PumpMessage) -> PostOutcome:
        outcome = PostOutcome(REJECTED, "a plugin")
        for each in await self._plugins.received(post):
            outcome = await self._handle(each, pump_message)
        return outcome

    async def _handle(self, post: Post, pump_message: PumpMessage) -> PostOutcome:
        is_report = is_report_topic(pump_message.topic)
        if (reason := self._post_filter.rejection(post, is_report=is_report)) is not None:
            return PostOutcome(REJECTED, reason)
        match = self._selection.choose(post.url)
        if isinstance(match, str):
            return PostOutcome(REJECTED, match)
        if is_report:
            return await self._forward_report(pump_message)
        known = post
        if self._provenance is not None:
            known = with_provenance(post, self._provenance, pump_message.exchange)
        outcome = PostOutcome(REJECTED, "a plugin")
        for each in await self._plugins.changed(known):
            outcome = await self._take(post, each, pump_message)
        return outcome

    async def _take(self, post: Post, accepted: Post, pump_message: PumpMessage) -> PostOutcome:
        if self._dry_run:
            log.info("dry run", path=post.relpath)
            return PostOutcome(reports.NOT_MODIFIED, "dry run")
        if self._duplicate_filter is None:
            return await self._forward(post, accepted, pump_message)
        async with self._duplicate_filter.first(accepted) as first:
            if not first:
                return PostOutcome(reports.NOT_MODIFIED, "duplicate")
            return await self._forward(post, accepted, pump_message)

    def _has_form(self, pump_message: PumpMessage) -> bool:
        return self._form is None or format_of(pump_message.body) == self._form

    async def _forward_report(self, pump_message: PumpMessage) -> PostOutcome:
        """Reports pass unchanged; only their topic differs between AMQP and MQTT."""
        if self._dry_run or self._post_publisher is None:
            return PostOutcome(reports.NOT_MODIFIED, "not forwarded")
        if self._reencode:
            report = reports.read_report(pump_message.body, pump_message.headers)
            await self._post_publisher.report(report)
        else:
            await self._post_publisher.forward(pump_message)
        return PostOutcome(reports.DONE, "Published")

    async def _forward(self, post: Post, accepted: Post, pump_message: PumpMessage) -> PostOutcome:
        announced = self._plugins.post(accepted)
        if announced is None:
            return PostOutcome(REJECTED, "a plugin")
        if self._post_publisher is None:
            return PostOutcome(reports.DONE, "seen", announced)
        if announced is post and not self._reencode and self._has_form(pump_message):
            await self._post_publisher.forward(pump_message, post)
        else:
            await self._post_publisher.announce(announced)
        return PostOutcome(reports.DONE, "Published")
