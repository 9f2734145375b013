"""What a hop adds to a post: who brought it in, where it came in, where it is to go.

Values that are there are kept, except that a hop which does not trust its sources takes their name
from the exchange they may write to (`xs_<user>`), and forgets where they say it came in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.pump.posts.post import Post


@dataclass(frozen=True, slots=True)
class Provenance:
    source: str | None = None
    cluster: str | None = None
    to_clusters: str | None = None
    trusted: bool = True
    exchange: str = ""  #: where posts are heard


def with_provenance(post: Post, known: Provenance) -> Post:
    source, from_cluster = post.source, post.from_cluster
    if not known.trusted:
        from_cluster = None
        if known.exchange.startswith("xs_"):
            source = known.exchange.split("_")[1]
    source, from_cluster = source or known.source, from_cluster or known.cluster
    to_clusters = post.to_clusters or known.to_clusters
    if (source, from_cluster, to_clusters) == (post.source, post.from_cluster, post.to_clusters):
        return post
    return replace(post, source=source, from_cluster=from_cluster, to_clusters=to_clusters)
