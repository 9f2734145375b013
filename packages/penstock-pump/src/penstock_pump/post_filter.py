"""Posts that a component takes: by event, age, size, content and cluster.

`to_clusters` of a post lists the clusters it is for; a hop takes it only if it is, or leads to, one
of them. A report goes the other way, to the cluster its post came from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock_pump.posts.post import FileEvent, Post

#: The name that means every cluster.
EVERY_CLUSTER = "ALL"


@dataclass(frozen=True, slots=True)
class PostFilter:
    events: frozenset[FileEvent] = frozenset(FileEvent)
    message_age_max: float = 0.0
    file_age_max: float = 0.0
    file_size_max: int = 0
    inline_only: bool = False
    clusters: frozenset[str] = frozenset()  #: that this hop is or leads to; empty: all
    clock: Callable[[], float] = time.time

    def rejection(self, post: Post, *, is_report: bool = False) -> str | None:
        """The reason, or None."""
        if post.event not in self.events and not is_report:
            return f"event {post.event.value}"
        wanted = _clusters_of(post, is_report) if self.clusters else set()
        if wanted and not wanted & (self.clusters | {EVERY_CLUSTER}):
            return f"not for {', '.join(sorted(self.clusters))}"
        if self._is_older(post.moment, self.message_age_max):
            return "the post is too old"
        if self._is_older(post.mtime, self.file_age_max):
            return "the file is too old"
        size = post.parts.file_size if post.parts is not None else 0
        if self.file_size_max and size > self.file_size_max:
            return "the file is too large"
        if self.inline_only and post.content is None and post.event is FileEvent.MODIFY:
            return "no inlined content"
        return None

    def _is_older(self, moment: int | None, most: float) -> bool:
        return most > 0 and moment is not None and self.clock() - moment / 1e9 > most


def _clusters_of(post: Post, is_report: bool) -> set[str]:
    text = (post.from_cluster if is_report else post.to_clusters) or ""
    return {each.strip() for each in text.split(",") if each.strip()}
