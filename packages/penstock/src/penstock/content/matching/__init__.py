"""Which of many filters a message meets: indexes that change as filters come and go.

The two tables of a router: subscriptions, asked with publications and advertisements, and
advertisements, asked with subscriptions and publications. `docs/content.md` tells the design. This,
and composites upon it, is the part of the room that needs NumPy.
"""

from penstock.content.matching.matcher import AdvertisementMatcher, Matcher

__all__ = ["AdvertisementMatcher", "Matcher"]
