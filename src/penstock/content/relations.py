"""How publications, subscriptions and advertisements relate: the four questions of the language.

- `satisfies`: every predicate of the subscription is true of the publication.
- `conforms`: every attribute of the publication is named by the advertisement, and allowed.
- `intersects`: a publication can both conform to the advertisement and satisfy the subscription.
- `covers`: whatever satisfies the second filter satisfies the first; for advertisements
  (`covers_advertisement`), whatever conforms.

They are exact over the reals and over all texts. The one exception is a filter that compares with
variables (`[high,>,$F$x]`): it intersects what it would without, and covers only its equal.

Types are strict on demand: then a predicate that names an integer is true of integers alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from itertools import combinations

from penstock.content.bindings import bind
from penstock.content.extents import Extent, Values, both, includes, is_empty, merged, only
from penstock.content.messages import Advertisement, Publication, Subscription


def satisfies(publication: Publication, subscription: Subscription, strict: bool = False) -> bool:
    if publication.class_name != subscription.class_name:
        return False
    return bind(subscription.predicates, publication.attributes, strict) is not None


def conforms(publication: Publication, advertisement: Advertisement, strict: bool = False) -> bool:
    if publication.class_name != advertisement.class_name:
        return False
    attributes = publication.attributes
    asked = [p for p in advertisement.predicates if p.attribute in attributes]
    if len({p.attribute for p in asked}) != len(attributes):
        return False
    return bind(asked, attributes, strict) is not None


def intersects(
    subscription: Subscription, advertisement: Advertisement, strict: bool = False
) -> bool:
    return meet(Extent.of(subscription, strict), Extent.of(advertisement, strict))


def covers(wide: Subscription, narrow: Subscription, strict: bool = False) -> bool:
    return covers_extent(Extent.of(wide, strict), Extent.of(narrow, strict))


def covers_advertisement(wide: Advertisement, narrow: Advertisement, strict: bool = False) -> bool:
    return covers_advertised(Extent.of(wide, strict), Extent.of(narrow, strict))


# The same of extents.


def meet(subscribed: Extent, advertised: Extent) -> bool:
    """Whether a publication can have exactly the attributes that are subscribed to."""
    wanted, offered = subscribed.allowed, advertised.allowed
    if subscribed.class_name != advertised.class_name or not wanted.keys() <= offered.keys():
        return False
    common = {name: both(values, offered[name]) for name, values in wanted.items()}
    if any(is_empty(values) for values in common.values()):
        return False
    linked = (group & wanted.keys() for group in advertised.groups())
    groups = merged((*subscribed.groups(), *linked))
    return not any(is_empty(_shared(common, group)) for group in groups if group)


def covers_extent(wide: Extent, narrow: Extent) -> bool:
    """Whether one covers the other: asks of no more attributes, and of none more narrowly."""
    if wide.class_name != narrow.class_name:
        return False
    known = dict(narrow.allowed)
    groups = merged(narrow.groups())
    for group in groups:
        known.update(dict.fromkeys(group, _shared(known, group)))
    if any(is_empty(values) for values in known.values()):
        return True
    return (
        wide.allowed.keys() <= known.keys()
        and all(includes(values, known[name]) for name, values in wide.allowed.items())
        and all(_always_equal(group, known, groups) for group in wide.groups())
        and (not wide.compared or wide == narrow)
    )


def covers_advertised(wide: Extent, narrow: Extent) -> bool:
    """Whether one covers the other: names every attribute the other does, at least as widely.

    A publication may leave attributes out, so naming more is wider, and an attribute that nothing
    can be is as good as not named.
    """
    if wide.class_name != narrow.class_name:
        return False
    known = {name: values for name, values in narrow.allowed.items() if not is_empty(values)}
    groups = tuple(narrow.groups())
    return (
        all(
            name in wide.allowed and includes(wide.allowed[name], values)
            for name, values in known.items()
        )
        and all(
            _always_equal(pair, known, groups)
            for group in wide.groups()
            for pair in combinations(group & known.keys(), 2)
        )
        and (not wide.compared or wide == narrow)
    )


def _shared(allowed: Mapping[str, Values], group: Iterable[str]) -> Values:
    """What attributes that have to be equal can be."""
    return reduce(both, (allowed[name] for name in group))


def _always_equal(
    names: Collection[str], known: Mapping[str, Values], groups: Iterable[frozenset[str]]
) -> bool:
    """Whether attributes hold one value in all that the groups and sets allow."""
    if any(group.issuperset(names) for group in groups):
        return True
    single = {only(known[name]) for name in names}
    return len(single) == 1 and None not in single
