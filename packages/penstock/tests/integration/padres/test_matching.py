"""Who gets what: advertisements, subscriptions and publications of clients at one broker."""

from __future__ import annotations

from itertools import product

import pytest

from penstock.client.padres import PadresClient
from penstock.core.errors import PreconditionFailed
from tests.padres import PadresBroker, Watcher, watching

# Operators with a bound of 10, and of the publications around it those they are true of.
NUMBERS = (9, 10, 11)
NUMERIC = {
    "[p,=,10]": {10},
    "[p,<,10]": {9},
    "[p,<=,10]": {9, 10},
    "[p,>,10]": {11},
    "[p,>=,10]": {10, 11},
    "[p,<>,10]": {9, 11},
    "[p,isPresent,0]": {9, 10, 11},
}
TEXTS = ("la", "lag", "lam", "lamp", "clam", "clamp")
TEXTUAL = {
    "[t,eq,lam]": {"lam"},
    "[t,neq,lam]": {"la", "lag", "lamp", "clam", "clamp"},
    "[t,str-lt,lam]": {"la", "lag", "clam", "clamp"},
    "[t,str-le,lam]": {"la", "lag", "lam", "clam", "clamp"},
    "[t,str-gt,lam]": {"lamp"},
    "[t,str-ge,lam]": {"lam", "lamp"},
    "[t,str-prefix,lam]": {"lam", "lamp"},
    "[t,str-postfix,lam]": {"lam", "clam"},
    "[t,str-contains,lam]": {"lam", "lamp", "clam", "clamp"},
    "[t,isPresent,'']": set(TEXTS),
}


@pytest.mark.parametrize(("announced", "wanted"), [*product(NUMERIC, NUMERIC)])
async def test_every_numeric_operator_against_every_other(
    ada: PadresClient, bob: Watcher, kind: str, announced: str, wanted: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}],{announced}")
    await bob.client.subscribe(f"[class,eq,{kind}],{wanted}")

    for number in NUMBERS:
        publication = f"[class,{kind}],[p,{number}]"
        if number in NUMERIC[announced]:
            await ada.publish(publication)
        else:
            with pytest.raises(PreconditionFailed, match="conforms to no advertisement"):
                await ada.publish(publication)

    assert {one["p"] for one in await bob.got()} == NUMERIC[announced] & NUMERIC[wanted]


@pytest.mark.parametrize(("announced", "wanted"), [*product(TEXTUAL, TEXTUAL)])
async def test_every_operator_on_texts_against_every_other(
    ada: PadresClient, bob: Watcher, kind: str, announced: str, wanted: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}],{announced}")
    await bob.client.subscribe(f"[class,eq,{kind}],{wanted}")

    for text in TEXTS:
        publication = f"[class,{kind}],[t,'{text}']"
        if text in TEXTUAL[announced]:
            await ada.publish(publication)
        else:
            with pytest.raises(PreconditionFailed, match="conforms to no advertisement"):
                await ada.publish(publication)

    assert {one["t"] for one in await bob.got()} == TEXTUAL[announced] & TEXTUAL[wanted]


@pytest.mark.parametrize(
    ("wanted", "published", "comes"),
    [
        ("", "[a,1],[b,2]", True),
        ("[a,=,1]", "[a,1],[b,2]", True),
        ("[a,=,1],[b,=,2]", "[a,1],[b,2]", True),
        ("[a,=,1],[b,=,2]", "[a,1]", False),  # more attributes than the publication
        ("[a,=,1],[c,isPresent,0]", "[a,1],[b,2]", False),
        ("[a,=,1]", "[a,1]", True),  # fewer attributes than the advertisement
        ("[a,=,1]", "[a,2],[b,2]", False),
        ("[a,isPresent,'']", "[a,1]", False),  # of another type
        ("[a,isPresent,'']", "[t,'x']", False),
        ("[t,eq,x]", "[a,1],[t,'x']", True),
    ],
)
async def test_attributes_a_subscription_names_have_to_be_there(
    ada: PadresClient, bob: Watcher, kind: str, wanted: str, published: str, comes: bool
) -> None:
    await ada.advertise(f"[class,eq,{kind}],[a,isPresent,0],[b,isPresent,0],[t,isPresent,'']")
    await bob.client.subscribe(f"[class,eq,{kind}],{wanted}".rstrip(","))
    await ada.publish(f"[class,{kind}],{published}")

    assert bool(await bob.got()) is comes


@pytest.mark.parametrize(
    "published",
    ["[a,11]", "[a,'10']", "[b,1]", "[a,10],[b,1]"],
    ids=["value", "type", "attribute", "one attribute more"],
)
async def test_what_conforms_to_no_advertisement_is_refused(
    ada: PadresClient, bob: Watcher, kind: str, published: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}],[a,<=,10]")
    await bob.client.subscribe(f"[class,eq,{kind}]")

    with pytest.raises(PreconditionFailed, match="conforms to no advertisement"):
        await ada.publish(f"[class,{kind}],{published}")
    assert await bob.got() == []


async def test_an_advertisement_of_another_client_does_not_count(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    await bob.client.advertise(f"[class,eq,{kind}]")

    with pytest.raises(PreconditionFailed):
        await ada.publish(f"[class,{kind}]")


async def test_a_client_gets_what_it_publishes_itself(bob: Watcher, kind: str) -> None:
    await bob.client.advertise(f"[class,eq,{kind}]")
    await bob.client.subscribe(f"[class,eq,{kind}]")
    await bob.client.publish(f"[class,{kind}]")

    assert len(await bob.got()) == 1


async def test_a_client_with_several_subscriptions_gets_one_copy(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}],[a,isPresent,0]")
    for most in (10, 20, 30):
        await bob.client.subscribe(f"[class,eq,{kind}],[a,<,{most}]")
    await ada.publish(f"[class,{kind}],[a,5]")
    await ada.publish(f"[class,{kind}],[a,25]")

    assert [one["a"] for one in await bob.got()] == [5, 25]


async def test_two_clients_with_the_same_interest_get_a_copy_each(
    padres: PadresBroker, ada: PadresClient, bob: Watcher, kind: str
) -> None:
    async with watching(padres.url) as cyd:
        await ada.advertise(f"[class,eq,{kind}],[a,isPresent,0]")
        for one, most in ((bob, 10), (cyd, 20)):
            await one.client.subscribe(f"[class,eq,{kind}],[a,<,{most}]")
        for value in (5, 15, 25):
            await ada.publish(f"[class,{kind}],[a,{value}]")

        assert [one["a"] for one in await bob.got()] == [5]
        assert [one["a"] for one in await cyd.got()] == [5, 15]


async def test_a_subscription_counts_though_the_advertisement_comes_later(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    await bob.client.subscribe(f"[class,eq,{kind}]")
    await ada.advertise(f"[class,eq,{kind}]")
    await ada.publish(f"[class,{kind}]")

    assert len(await bob.got()) == 1


async def test_nothing_comes_after_unsubscribing(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}]")
    wanted = await bob.client.subscribe(f"[class,eq,{kind}]")
    await ada.publish(f"[class,{kind}]")
    await bob.client.withdraw(wanted)
    await ada.publish(f"[class,{kind}]")

    assert len(await bob.got()) == 1


async def test_nothing_may_be_published_after_unadvertising(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    announced = await ada.advertise(f"[class,eq,{kind}]")
    await bob.client.subscribe(f"[class,eq,{kind}]")
    await ada.withdraw(announced)

    with pytest.raises(PreconditionFailed):
        await ada.publish(f"[class,{kind}]")
    await ada.advertise(f"[class,eq,{kind}]")
    await ada.publish(f"[class,{kind}]")
    assert len(await bob.got()) == 1


async def test_all_of_a_publication_arrives(ada: PadresClient, bob: Watcher, kind: str) -> None:
    await ada.advertise(f"[class,eq,{kind}],[a,isPresent,0.5],[t,isPresent,'']")
    await bob.client.subscribe(f"[class,eq,{kind}]")
    text = f'[class,{kind}],[a,61.5],[t,"it\'s"]'
    published = await ada.publish(text, b"\x00 a payload", trace="t1", priority=2)

    (received,) = await bob.got()
    assert (received.text, received.payload) == (text, b"\x00 a payload")
    assert (received.id, received.source) == (published, f"Broker1-{ada.id}")
    assert (received.envelope.priority, received.envelope.trace) == (2, "t1")
    assert received.attributes == {"a": 61.5, "t": "it's"}
    assert received.broker == "Broker1"


QUOTES = [
    f"[class,{{kind}}],[symbol,'{symbol}'],[open,{low + 1}],[high,{low + 3}],[low,{low}],"
    f"[close,{low + 2.25}],[volume,{volume}],[date,'{day}-Apr-96']"
    for symbol, low, volume, day in [
        ("YHOO", 18.37, 7_434_500, 12),
        ("IBM", 108.5, 3_226_900, 12),
        ("MSFT", 104.12, 0, 15),
        ("A-B:C", 0.01, 12, 1),
        ("", 7, 5, 30),
    ]
]


@pytest.mark.parametrize("quote", QUOTES)
async def test_quotes_conform_and_come_back_as_they_went(
    ada: PadresClient, bob: Watcher, kind: str, quote: str
) -> None:
    numbers = ",".join(f"[{name},>=,0]" for name in ("open", "high", "low", "close", "volume"))
    await ada.advertise(f"[class,eq,{kind}],[symbol,isPresent,''],{numbers},[date,isPresent,'']")
    await bob.client.subscribe(f"[class,eq,{kind}],[volume,<,10000000]")
    await ada.publish(quote.format(kind=kind))

    assert await bob.texts() == [quote.format(kind=kind)]
