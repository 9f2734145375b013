"""The relations of the content language.

- `satisfies`: every predicate of the subscription holds for the publication.
- `conforms`: the advertisement has every attribute of the publication, with an allowed value.
- `intersects`: some publication conforms to the advertisement and satisfies the subscription.
- `covers`: whatever satisfies the second filter satisfies the first; for advertisements
  (`covers_advertisement`), whatever conforms.

They are exact over the reals and over all texts, except for filters that compare with variables
(`[high,>,$F$x]`): those intersect as if they did not compare, and cover only their equal. With
strict types, a predicate with an integer operand holds for integers only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import TypeAlias

from penstock.content.bindings import bind
from penstock.content.messages import (
    BINDING,
    Advertisement,
    Filter,
    Operator,
    Predicate,
    Publication,
    Subscription,
    Value,
    Variable,
    VariableType,
)
from penstock.content.value_sets import (
    ANY_NUMBER,
    ANY_STRING,
    INTEGERS,
    WHOLE_NUMBERS,
    NumberSet,
    StringSet,
    numbers_satisfying,
    strings_satisfying,
)


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
    return extents_intersect(
        FilterExtent.of(subscription, strict), FilterExtent.of(advertisement, strict)
    )


def covers(wide: Subscription, narrow: Subscription, strict: bool = False) -> bool:
    return covers_extent(FilterExtent.of(wide, strict), FilterExtent.of(narrow, strict))


def covers_advertisement(wide: Advertisement, narrow: Advertisement, strict: bool = False) -> bool:
    return covers_advertised_extent(FilterExtent.of(wide, strict), FilterExtent.of(narrow, strict))


def extents_intersect(subscribed: FilterExtent, advertised: FilterExtent) -> bool:
    wanted, offered = subscribed.allowed, advertised.allowed
    if subscribed.class_name != advertised.class_name or not wanted.keys() <= offered.keys():
        return False
    common = {name: intersect_values(values, offered[name]) for name, values in wanted.items()}
    if any(is_empty(values) for values in common.values()):
        return False
    linked = (group & wanted.keys() for group in advertised.groups())
    groups = merge_groups((*subscribed.groups(), *linked))
    return not any(is_empty(_shared(common, group)) for group in groups if group)


def covers_extent(wide: FilterExtent, narrow: FilterExtent) -> bool:
    """The wider one restricts no more attributes, and none more narrowly."""
    if wide.class_name != narrow.class_name:
        return False
    known = dict(narrow.allowed)
    groups = merge_groups(narrow.groups())
    for group in groups:
        known.update(dict.fromkeys(group, _shared(known, group)))
    if any(is_empty(values) for values in known.values()):
        return True
    return (
        wide.allowed.keys() <= known.keys()
        and all(includes_values(values, known[name]) for name, values in wide.allowed.items())
        and all(_always_equal(group, known, groups) for group in wide.groups())
        and (not wide.compared or wide == narrow)
    )


def covers_advertised_extent(wide: FilterExtent, narrow: FilterExtent) -> bool:
    """The wider one names every attribute of the other, at least as widely.

    A publication may omit attributes, so naming more is wider, and an attribute without possible
    values does not count.
    """
    if wide.class_name != narrow.class_name:
        return False
    known = {name: values for name, values in narrow.allowed.items() if not is_empty(values)}
    groups = tuple(narrow.groups())
    return (
        all(
            name in wide.allowed and includes_values(wide.allowed[name], values)
            for name, values in known.items()
        )
        and all(
            _always_equal(pair, known, groups)
            for group in wide.groups()
            for pair in combinations(group & known.keys(), 2)
        )
        and (not wide.compared or wide == narrow)
    )


def _shared(allowed: Mapping[str, ValueSet], group: Iterable[str]) -> ValueSet:
    """The common values of attributes that must be equal."""
    return reduce(intersect_values, (allowed[name] for name in group))


def _always_equal(
    names: Collection[str], known: Mapping[str, ValueSet], groups: Iterable[frozenset[str]]
) -> bool:
    """Whether the attributes are equal in everything that groups and sets allow."""
    if any(group.issuperset(names) for group in groups):
        return True
    single = {single_value(known[name]) for name in names}
    return len(single) == 1 and None not in single


#: The values of an attribute; None is the empty set, of text and numbers at once.
ValueSet: TypeAlias = NumberSet | StringSet | None


@dataclass(frozen=True, slots=True)
class FilterExtent:
    """A filter in normal form: the set of values that it allows for each attribute.

    Attributes bound to one variable form a group: they must be equal. Variables with other
    operators only restrict the type here. Compute it once for a filter with many comparisons.
    """

    class_name: str
    allowed: Mapping[str, ValueSet]
    bound: Mapping[str, frozenset[str]]  #: attributes by variable
    compared: frozenset[Predicate]  #: comparisons with variables

    @classmethod
    def of(cls, message: Filter, strict: bool = False) -> FilterExtent:
        allowed: dict[str, ValueSet] = {}
        bound: dict[str, set[str]] = {}
        compared = []
        for predicate in message.predicates:
            attribute, operator, operand = predicate
            values = allowed_by(predicate, strict)
            allowed[attribute] = (
                intersect_values(allowed[attribute], values) if attribute in allowed else values
            )
            if isinstance(operand, Variable):
                if operator in BINDING:
                    bound.setdefault(operand.name, set()).add(attribute)
                elif operator is not Operator.PRESENT:
                    compared.append(predicate)
        frozen = {variable: frozenset(names) for variable, names in bound.items()}
        return cls(message.class_name, allowed, frozen, frozenset(compared))

    def groups(self) -> Iterable[frozenset[str]]:
        """Groups of two or more attributes that must be equal where present."""
        return (names for names in self.bound.values() if len(names) > 1)


def allowed_by(predicate: Predicate, strict: bool = False) -> ValueSet:
    operand = predicate.operand
    if isinstance(operand, Variable):
        if operand.kind is VariableType.STRING:
            return ANY_STRING
        if operand.kind is VariableType.INTEGER:
            return INTEGERS if strict else WHOLE_NUMBERS
        return ANY_NUMBER
    if isinstance(operand, str):
        return strings_satisfying(predicate.operator, operand)
    return numbers_satisfying(predicate.operator, operand, strict)


def intersect_values(left: ValueSet, right: ValueSet) -> ValueSet:
    if isinstance(left, NumberSet) and isinstance(right, NumberSet):
        return left & right
    if isinstance(left, StringSet) and isinstance(right, StringSet):
        return left & right
    return None


def is_empty(values: ValueSet) -> bool:
    return values is None or values.is_empty()


def single_value(values: ValueSet) -> Value | None:
    """The only value, if there is one."""
    return None if values is None else values.only()


def includes_values(wide: ValueSet, narrow: ValueSet) -> bool:
    if isinstance(wide, NumberSet) and isinstance(narrow, NumberSet):
        return wide.includes(narrow)
    if isinstance(wide, StringSet) and isinstance(narrow, StringSet):
        return wide.includes(narrow)
    return is_empty(narrow)


def merge_groups(groups: Iterable[Iterable[str]]) -> tuple[frozenset[str], ...]:
    """Merge groups that share a member."""
    apart: list[frozenset[str]] = []
    for names in groups:
        group = frozenset(names)
        for other in [other for other in apart if other & group]:
            apart.remove(other)
            group |= other
        apart.append(group)
    return tuple(apart)
