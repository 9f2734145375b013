"""Owner by object: whoever runs another business gets nothing of this one, and changes nothing.

The calls are those of the OpenAPI document with an object in their path. A new object needs an id
in `Things`, a new call a body that is accepted; without one, the test fails.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from penstock_hives.people.permissions import AppPermission
from tests.hives.app.world import NOON, World, deal, png

_PARAMETER = re.compile(r"\{(\w+)\}")
#: What anybody who is signed in may do with a public object: their own favourites and redemptions.
OPEN_TO_USERS = {
    ("put", "/v1/me/favourites/{hive}"),
    ("delete", "/v1/me/favourites/{hive}"),
    ("put", "/v1/me/recent/{hive}"),
    ("post", "/v1/deals/{deal}/redeem"),
    ("post", "/v1/deals/{deal}/events"),
}
#: Where the generated body is not accepted.
BODIES: dict[tuple[str, str], Any] = {
    ("post", "/v1/hives/{hive}/deals"): deal(),
    ("post", "/v1/accounts/{account}/hives"): {"name": "X", "type": "bar", "time_zone": "UTC"},
    ("post", "/v1/accounts/{account}/metrics"): {"name": "X", "formula": "visits"},
    ("put", "/v1/sensors/{sensor}/modem"): {"imei": "490154203237518"},
}
#: Required queries are periods.
PERIOD = {
    ("from", "date"): "2026-03-01",
    ("to", "date"): "2026-03-02",
    ("from", "date-time"): "2026-03-01T00:00:00Z",
    ("to", "date-time"): "2026-03-02T00:00:00Z",
}


@dataclass(frozen=True)
class Things:
    """One of each kind, of the business or of its admin."""

    account: int
    hive: int
    deal: int
    image: int
    sensor: int
    network: int
    metric: int
    user: int
    message: int
    key: int
    subscription: int
    setting: int
    alert: int
    device: int
    note: int
    code: str


async def things(world: World) -> tuple[Things, str]:
    """And the name of their owner."""
    business = await world.business()
    admin, hive, account = business.admin, business.hive, business.account
    user = await world.number(admin)
    made = await world.make(f"/hives/{hive}/deals", admin, {**deal(), "status": "published"})
    customer = await world.user()
    redeemed = await world.make(f"/deals/{made['id']}/redeem", customer)
    sensor = await world.make(
        f"/hives/{hive}/sensors", admin, {"serial": f"own-{hive}", "protocol": "v2"}
    )
    network = await world.make(f"/hives/{hive}/networks", admin, {"kind": "wifi", "ssid": "bees"})
    body = {"name": "Visits", "formula": "visits"}
    metric = await world.make(f"/accounts/{account}/metrics", admin, body)
    picture = {"file": ("a.png", png(), "image/png")}
    image = await world.call("POST", f"/hives/{hive}/images", admin, files=picture)
    assert image.status_code == 201, image.text
    feedback = {"type": "feedback", "content": "Good", "hive_id": hive}
    message = await world.make("/messages", customer, feedback)
    setting = await world.make(
        "/me/notification-settings",
        admin,
        {"kind": "occupancy_below", "hive_id": hive, "threshold": 5, "unit": "count"},
    )
    key = await world.make("/me/keys", admin, {"name": "mine"})
    [device] = world.rows(
        "INSERT INTO push_endpoint (user_id, kind, address) VALUES (%s, 'fcm', 'a' || %s)"
        " RETURNING id",
        *(user, user),
    )
    [note] = world.rows(
        "INSERT INTO notification (user_id, kind, title, body, idempotency_key, created_at)"
        " VALUES (%s, 'system', 't', 'b', 'own-' || %s, %s) RETURNING id",
        *(user, user, NOON),
    )
    held = world.subscribe("basic", user=user)
    return (
        Things(
            account=account,
            hive=hive,
            deal=made["id"],
            image=image.json()["id"],
            sensor=sensor["id"],
            network=network["id"],
            metric=metric["id"],
            user=user,
            message=message["id"],
            key=key["key"]["id"],
            subscription=held,
            setting=setting["id"],
            alert=setting["id"],
            device=device["id"],
            note=note["id"],
            code=redeemed["code"],
        ),
        admin,
    )


def sample(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    """The smallest value of a JSON schema; good enough for our bodies."""
    if "$ref" in schema:
        return sample(document["components"]["schemas"][schema["$ref"].split("/")[-1]], document)
    for name in ("anyOf", "oneOf", "allOf"):
        if name in schema:
            return sample(schema[name][0], document)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            wanted = schema.get("required", ())
            return {name: sample(schema["properties"][name], document) for name in wanted}
        case "array":
            return [sample(schema["items"], document)] * schema.get("minItems", 0)
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case _:
            moment = {"date-time": NOON.isoformat(), "date": "2026-03-02", "time": "10:00"}
            text = moment.get(schema.get("format", ""), "x")
            return text.ljust(schema.get("minLength", 1), "x")


def body_of(
    where: tuple[str, str], operation: dict[str, Any], document: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a call."""
    content = operation.get("requestBody", {}).get("content", {})
    if "multipart/form-data" in content:
        return {"files": {"file": ("a.png", png(), "image/png")}}
    if where in BODIES:
        return {"json": BODIES[where]}
    if "application/json" not in content:
        return {}
    return {"json": sample(content["application/json"]["schema"], document)}


async def test_nobody_reads_or_changes_what_is_of_another_business(world: World) -> None:
    document = await world.read("/openapi.json")
    mine, owner = await things(world)
    stranger = (await world.business()).admin
    names = {field.name for field in fields(mine)}
    wrong, checked = [], 0
    for path, item in document["paths"].items():
        objects = set(_PARAMETER.findall(path))
        if not objects:
            continue
        assert objects <= names, f"{path}: {objects - names} need an id in Things"
        target = _PARAMETER.sub(lambda found: str(getattr(mine, found[1])), path)
        for verb, operation in item.items():
            where = (verb, path)
            is_public = operation["x-permission"] == AppPermission.READ_PUBLIC
            if where in OPEN_TO_USERS or is_public:
                continue
            given = body_of(where, operation, document)
            query = {
                each["name"]: PERIOD[each["name"], each["schema"]["format"]]
                for each in operation.get("parameters", ())
                if each["in"] == "query" and each.get("required")
            }
            given |= {"params": query}
            answer = await world.call(verb, target.removeprefix("/v1"), stranger, **given)
            checked += 1
            if answer.status_code not in (403, 404):
                wrong.append((verb, path, answer.status_code, answer.text[:200]))
            if verb == "get":  # the object is there, so the refusal meant something
                seen = await world.get(target.removeprefix("/v1"), owner, params=query)
                if seen.status_code not in (200, 501):
                    wrong.append((verb, path, seen.status_code, "for the owner"))
    assert wrong == [], "\n".join(map(str, wrong))
    assert checked > 60
