"""Messages over HTTP: feedback, questions, answers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_hives.messages.service import MAX_MESSAGES, MAX_REPLIES
from tests.hives.app.world import Business, World


@pytest.fixture
async def business(world: World) -> Business:
    return await world.business()


async def feedback(world: World, who: str, hive: int, content: str = "Lovely, but loud.") -> int:
    body = {"type": "feedback", "content": content, "hive_id": hive}
    return int((await world.make("/messages", who, body))["id"])


async def test_feedback_to_a_hive_reaches_its_business(world: World, business: Business) -> None:
    who = await world.user()
    await feedback(world, who, business.hive)

    [heard] = (await world.read(f"/accounts/{business.account}/messages", business.member))["items"]

    assert (heard["content"], heard["type"]) == ("Lovely, but loud.", "feedback")
    assert heard["hive_id"] == business.hive


async def test_feedback_may_come_with_stars(world: World, business: Business) -> None:
    said = {"type": "feedback", "content": "Lovely.", "hive_id": business.hive, "rating": 5}
    who = await world.user()
    assert (await world.make("/messages", who, said))["rating"] == 5

    [heard] = (await world.read(f"/accounts/{business.account}/messages", business.member))["items"]
    assert heard["rating"] == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "feedback", "hive_id": 1, "rating": 6},
        {"type": "feedback", "hive_id": 1, "rating": 0},
        {"type": "support", "rating": 5},
    ],
)
async def test_other_stars_are_refused(world: World, wrong: dict[str, Any]) -> None:
    body = {"content": "Hm.", **wrong}
    answer = await world.call("POST", "/messages", await world.user(), json=body)
    assert answer.status_code == 422


async def test_a_business_answers_and_the_user_reads_it(world: World, business: Business) -> None:
    who = await world.user()
    number = await feedback(world, who, business.hive)

    reply = await world.make(f"/messages/{number}/replies", business.member, {"content": "Thanks"})

    inbox = (await world.read("/messages", who))["items"]
    assert [each["type"] for each in inbox] == ["reply", "feedback"]
    assert inbox[0]["read_at"] is None
    assert (await world.read(f"/messages/{reply['id']}", who))["read_at"] is not None


async def test_messages_of_others_are_not_there(world: World, business: Business) -> None:
    number = await feedback(world, await world.user(), business.hive)
    stranger, rival = await world.user(), await world.business()

    for who in (stranger, rival.admin):
        assert (await world.get(f"/messages/{number}", who)).status_code == 404
        body = {"content": "Me too"}
        answer = await world.call("POST", f"/messages/{number}/replies", who, json=body)
        assert answer.status_code == 404
    path = f"/accounts/{business.account}/messages"
    assert (await world.get(path, rival.admin)).status_code == 403


async def test_one_takes_back_what_one_wrote_with_the_answers(
    world: World, business: Business
) -> None:
    who = await world.user()
    number = await feedback(world, who, business.hive)
    await world.make(f"/messages/{number}/replies", business.member, {"content": "Thanks"})

    assert (await world.delete(f"/messages/{number}", business.member)).status_code == 404
    assert (await world.delete(f"/messages/{number}", who)).status_code == 204

    assert (await world.read("/messages", who))["items"] == []


async def test_questions_reach_operators_and_nobody_else(world: World) -> None:
    who, operator = await world.user(), await world.user(role="operator")
    made = await world.make("/messages", who, {"type": "support", "content": "Where is my plan?"})

    asked = (await world.read("/support", operator))["items"]
    await world.make(f"/messages/{made['id']}/replies", operator, {"content": "Here."})

    assert made["id"] in [each["id"] for each in asked]
    assert (await world.get("/support", who)).status_code == 403
    assert len((await world.read("/messages", who))["items"]) == 2


async def test_messages_that_cannot_be_meant_are_refused(world: World) -> None:
    who = await world.user()
    wrong: list[object] = [
        {"type": "feedback", "content": "to nobody"},
        {"type": "feedback", "content": "to two", "hive_id": 1, "account_id": 1},
        {"type": "support", "content": "to a hive", "hive_id": 1},
        {"type": "system", "content": "I am the system"},
        {"type": "support", "content": "   "},
        {"type": "support", "content": "x" * 4001},
    ]

    for body in wrong:
        assert (await world.call("POST", "/messages", who, json=body)).status_code == 422, body


async def test_feedback_is_summed_up_by_sentiment(world: World, business: Business) -> None:
    who = await world.user()
    for content, label, value in (("good", "positive", 0.8), ("bad", "negative", -0.4)):
        number = await feedback(world, who, business.hive, content)
        world.rows(
            "UPDATE user_message SET sentiment = %s, sentiment_label = %s, model_version = 'v' "
            "WHERE id = %s",
            *(value, label, number),
        )
    await feedback(world, who, business.hive, "not read yet")

    [summary] = await world.read(f"/accounts/{business.account}/feedback", business.member)
    negative = await world.read(
        f"/accounts/{business.account}/messages?sentiment=negative", business.member
    )

    assert (summary["messages"], summary["positive"], summary["negative"]) == (3, 1, 1)
    assert summary["unread"] == 1
    assert summary["mean_sentiment"] == pytest.approx(0.2)
    assert [each["content"] for each in negative["items"]] == ["bad"]


async def test_feedback_is_told_day_by_day_as_the_nights_have_read_it(
    world: World, business: Business
) -> None:
    for day in ("2026-01-15", "2026-03-01"):
        world.rows(
            "INSERT INTO feedback_day VALUES (%s, %s, 4, 3, 1, 0.5, 'vader', now())",
            *(business.hive, day),
        )

    path = f"/accounts/{business.account}/feedback/days?to=2026-03-02"
    [found] = await world.read(f"{path}&from=2026-02-01", business.member)

    assert (found["day"], found["positive"], found["sentiment"]) == ("2026-03-01", 3, 0.5)
    path += "&from=2026-01-01"
    assert len(await world.read(path, business.member)) == 2
    assert (await world.get(path, (await world.business()).admin)).status_code == 403


async def test_an_inbox_comes_in_pages(world: World, business: Business) -> None:
    who = await world.user()
    made = [await feedback(world, who, business.hive, f"no {n}") for n in range(5)]

    first = await world.read("/messages?limit=3", who)
    rest = await world.read(f"/messages?limit=3&cursor={first['next']}", who)

    seen = [each["id"] for each in first["items"] + rest["items"]]
    assert seen == made[::-1]
    assert rest["next"] is None


async def test_nobody_sends_more_than_thirty_messages_an_hour(world: World) -> None:
    who = await world.user()
    given = {"type": "support", "content": "hello"}
    answers = [await world.call("POST", "/messages", who, json=given) for _ in range(31)]
    assert [answer.status_code for answer in answers] == [201] * 30 + [429]
    assert "Retry-After" in answers[-1].headers


async def test_messages_and_answers_are_limited_by_the_hour(
    world: World, business: Business
) -> None:
    who = await world.user()
    message = await feedback(world, who, business.hive)

    async def answered(by: str, before: int) -> int:
        world.rows(
            "INSERT INTO user_message (user_id, author_id, type, content) "
            "SELECT %s, %s, 'reply', 'x' FROM generate_series(1, %s)",
            *(await world.number(who), await world.number(by), before),
        )
        body = {"content": "Thank you."}
        return (await world.call("POST", f"/messages/{message}/replies", by, json=body)).status_code

    assert await answered(business.admin, MAX_REPLIES - 1) == 201
    assert await answered(business.admin, 0) == 429
    assert await answered(who, MAX_MESSAGES - 2) == 201
    assert await answered(who, 0) == 429
    body = {"type": "feedback", "content": "Again.", "hive_id": business.hive}
    assert (await world.call("POST", "/messages", who, json=body)).status_code == 429
    operator = await world.user(role="operator")
    assert await answered(operator, MAX_REPLIES) == 201
