"""Indexes of filters that change as filters are added and removed.

`Matcher` holds subscriptions and is queried with publications and advertisements;
`AdvertisementMatcher` the reverse. `docs/content.md` explains the design. This room and `composite`
need NumPy.
"""

from penstock.content.matching.matcher import AdvertisementMatcher, Matcher

__all__ = ["AdvertisementMatcher", "Matcher"]
