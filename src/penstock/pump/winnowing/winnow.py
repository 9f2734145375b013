"""What winnow and shovel do with a post: let it through as it came, or not."""

from __future__ import annotations

from penstock.pump.flow.announcing import Announcing
from penstock.pump.flow.letter import Letter
from penstock.pump.outcome import REJECTED, Outcome
from penstock.pump.plugins import Plugins
from penstock.pump.posts import reports
from penstock.pump.posts.post import Post
from penstock.pump.selection import Selection
from penstock.pump.winnowing.suppression import Suppression


class Passing:
    """Keeps `Work`. Without a suppression everything that is wanted goes through.

    A message is sent on as it came, byte for byte, unless a plugin changed the post or another
    spelling is asked for.
    """

    def __init__(
        self,
        announcing: Announcing,
        selection: Selection,
        *,
        suppression: Suppression | None = None,
        plugins: Plugins | None = None,
        spelled_anew: bool = False,
    ) -> None:
        self._announcing = announcing
        self._selection = selection
        self._suppression = suppression
        self._plugins = plugins or Plugins()
        self._spelled_anew = spelled_anew

    async def __call__(self, post: Post, letter: Letter) -> Outcome:
        chosen = self._selection.choose(post.url)
        if isinstance(chosen, str):
            return Outcome(REJECTED, chosen)
        kept = self._plugins.message(post)
        if kept is None:
            return Outcome(REJECTED, "a plugin")
        if self._suppression is None:
            return await self._pass_on(post, kept, letter)
        async with self._suppression.first(kept) as first:
            if not first:
                return Outcome(reports.NOT_MODIFIED, "duplicate")
            return await self._pass_on(post, kept, letter)

    async def _pass_on(self, post: Post, kept: Post, letter: Letter) -> Outcome:
        told = self._plugins.post(kept)
        if told is None:
            return Outcome(REJECTED, "a plugin")
        if told is post and not self._spelled_anew:
            await self._announcing.repeat(letter, post)
        else:
            await self._announcing.announce(told)
        return Outcome(reports.DONE, "Published")
