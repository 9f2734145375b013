"""`/api/message-traces`: the timelines of selected messages. The firehose is a field of a virtual
host, `tracing`, as in RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.errors import NotFound, PreconditionFailed
from penstock.destinations.tracing import Timeline, TraceRules
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute
from penstock.server.management.http import (
    NO_CONTENT,
    HttpResponse,
    bad_request,
    json_response,
)
from penstock.server.management.list_query import Row, item_response, list_response


@dataclass(frozen=True, slots=True)
class TimelineFilter:
    """Which timelines are listed; an empty field selects all."""

    trace_id: str = ""  #: how the id begins
    queue: str = ""  #: one that the message was routed to, stored in or delivered from
    event: str = ""  #: one that the timeline contains
    user: str = ""  #: who published or received the message

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> TimelineFilter:
        given = {name: query.get(name, "") for name in cls.__slots__}
        return cls(**given)

    def accepts(self, timeline: Timeline) -> bool:
        events = timeline.events
        return (
            timeline.trace_id.startswith(self.trace_id.lower())
            and (not self.queue or any(self.queue in queues_of(event) for event in events))
            and (not self.event or any(self.event == event["event"] for event in events))
            and (not self.user or any(self.user == event.get("user") for event in events))
        )


def queues_of(event: dict[str, Any]) -> list[str]:
    """The queues that an event names."""
    return [event["queue"]] if "queue" in event else list(event.get("queues", ()))


def describe_timeline(timeline: Timeline) -> Row:
    """A row of the list: the summary, its kinds of events and its queues, in their order."""
    queues = [name for event in timeline.events for name in queues_of(event)]
    return {
        **timeline.summary(),
        "path": list(dict.fromkeys(event["event"] for event in timeline.events)),
        "queues": list(dict.fromkeys(queues)),
    }


async def get_traces(call: ApiCall) -> HttpResponse:
    """The trace rules of a virtual host, and a summary of each timeline."""
    tracer = call.broker.tracer(call.vhost)
    rules = tracer.rules
    described: Row = {
        "vhost": call.vhost.name,
        "firehose": tracer.firehose,
        "rules": None if rules is None else rules.to_json(),
    }
    columns = call.request.query.get("columns")
    if not columns or "timelines" in columns.split(","):
        timelines = reversed(tracer.timelines.values())
        described["timelines"] = [timeline.summary() for timeline in timelines]
    return item_response(call, described)


async def list_timelines(call: ApiCall) -> HttpResponse:
    """The timelines of a virtual host, paged, sorted and filtered; `name` is the routing key."""
    wanted = TimelineFilter.parse(call.request.query)
    # A copy: messages are traced while slices of a long list are encoded.
    timelines = list(reversed(call.broker.tracer(call.vhost).timelines.values()))

    def rows() -> Iterator[Row]:
        for timeline in timelines:
            if wanted.accepts(timeline):
                yield describe_timeline(timeline)

    return await list_response(call, rows(), ("routing_key",))


async def get_timeline(call: ApiCall) -> HttpResponse:
    """The timeline of a message: each event from publish to acknowledgement."""
    timeline = call.broker.tracer(call.vhost).timelines.get(call.names["id"])
    if timeline is None:
        raise NotFound(f"no timeline '{call.names['id']}' in vhost '{call.vhost.name}'")
    return json_response(timeline.describe())


async def put_rules(call: ApiCall) -> HttpResponse:
    """Set the rules that select the messages to trace."""
    try:
        rules = TraceRules.parse(await call.body())
    except PreconditionFailed as error:
        raise bad_request(str(error)) from None
    call.broker.tracer(call.vhost).set_rules(rules)
    return NO_CONTENT


async def delete_rules(call: ApiCall) -> HttpResponse:
    """Stop tracing in a virtual host."""
    call.broker.tracer(call.vhost).set_rules(None)
    return NO_CONTENT


_PATH: Final = "/api/message-traces/{vhost}"
_ADMINISTRATOR: Final = AccessLevel.ADMINISTRATOR

routes: Final = (
    ApiRoute("GET", _PATH, get_traces, _ADMINISTRATOR),
    ApiRoute("PUT", _PATH, put_rules, _ADMINISTRATOR),
    ApiRoute("DELETE", _PATH, delete_rules, _ADMINISTRATOR),
    ApiRoute("GET", "/api/message-timelines/{vhost}", list_timelines, _ADMINISTRATOR),
    ApiRoute("GET", f"{_PATH}/{{id}}", get_timeline, _ADMINISTRATOR),
)
