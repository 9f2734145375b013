"""What brokers can be told and asked by messages, from anywhere in the overlay."""

from __future__ import annotations

import json

import pytest

from penstock.broker.contract import ACCEPTED
from penstock.overlay.controller import OverlayController
from penstock.overlay.heartbeats import HeartbeatSettings
from penstock.overlay.monitor import MAX_ANSWER_BYTES
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope
from tests.overlay.simulation import Overlay, Person, Told
from tests.overlay.stages import Stages

STOCK = "[class,eq,stock],[price,>,0]"
AT_45 = "[class,stock],[price,45]"
ORDERS = (
    "[class,eq,BROKER_CONTROL],[brokerID,isPresent,x],[command,isPresent,x],"
    "[broker,isPresent,x],[INJECTION_ID,isPresent,x]"
)
QUESTIONS = (
    "[class,eq,BROKER_MONITOR],[brokerID,isPresent,x],[command,isPresent,x],"
    "[TRACEROUTE_ID,isPresent,x],[COMM_SESSION_ID,isPresent,x],[interval,>=,0]"
)


class Scene:
    """B1, B2 and B3 in a line; an operator at B1, a publisher at B1, a subscriber at B3."""

    def __init__(self) -> None:
        self.stages = Stages(Overlay([("B1", "B2"), ("B2", "B3")], pulse=HeartbeatSettings()))
        self.overlay = self.stages.overlay
        self.operator = self.stages.person("B1", "operator")
        self.operator.advertise(ORDERS)
        self.operator.advertise(QUESTIONS)
        self.operator.advertise("[class,eq,NETWORK_DISCOVERY]")
        self.publisher = self.stages.person("B1", "p")
        self.subscriber = self.stages.person("B3", "s")
        self.publisher.advertise(STOCK)
        self.stages.stage()
        self.subscriber.subscribe("[class,eq,stock]")
        self.stages.stage()

    def order(self, broker: str, command: str, more: str = "", payload: bytes = b"") -> None:
        text = f"[class,BROKER_CONTROL],[brokerID,{broker}],[command,{command}]{more}"
        self.operator.publish(text, payload=payload)
        self.overlay.settle()

    def ask(self, broker: str, command: str, more: str = "", payload: bytes = b"") -> None:
        text = f"[class,BROKER_MONITOR],[brokerID,{broker}],[command,{command}]{more}"
        self.operator.publish(text, payload=payload)
        self.overlay.settle()

    def watch(self, text: str) -> Person:
        watcher = self.stages.person("B2", "watcher")
        watcher.subscribe(text)
        self.stages.stage()
        return watcher


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_broker_holds_what_it_subscribes_to_and_advertises_for_itself() -> None:
    overlay = Overlay([("B1", "B2")], pulse=HeartbeatSettings())
    tables = overlay.routers["B1"].tables
    own = {
        one.message.class_name for one in tables.subscriptions.values() if one.hop == "B1-broker"
    }
    assert own == {
        *("BROKER_CONTROL", "BROKER_MONITOR", "HEARTBEAT_MANAGER"),
        *("NETWORK_DISCOVERY", "GLOBAL_FD"),
    }
    offered = {one.message.class_name for one in tables.advertisements.values()}
    assert offered >= {"BROKER_INFO", "HEARTBEAT_MANAGER", "TRACEROUTE_MESSAGE"}


# Stopping and going on.


@pytest.mark.parametrize("family", ["OVERLAY", "LIFECYCLE"])
def test_a_stopped_broker_keeps_what_should_leave_it_until_it_is_resumed(
    scene: Scene, family: str
) -> None:
    scene.order("B2", f"{family}-STOP")
    scene.publisher.publish(AT_45)
    scene.stages.stage()
    scene.order("B2", f"{family}-RESUME")
    scene.stages.stage({scene.subscriber: [AT_45]})


def test_a_stopped_broker_keeps_what_is_for_its_clients_and_confirms_none_of_it(
    scene: Scene,
) -> None:
    scene.order("B3", "LIFECYCLE-STOP")
    scene.publisher.publish(AT_45)
    scene.stages.stage()
    scene.order("B3", "LIFECYCLE-RESUME")
    scene.stages.stage({scene.subscriber: [AT_45]})


def test_what_others_tell_of_themselves_passes_a_stopped_broker(scene: Scene) -> None:
    watcher = scene.stages.person("B1", "watcher")
    watcher.subscribe("[class,eq,BROKER_INFO]")
    scene.stages.stage()
    scene.order("B2", "LIFECYCLE-STOP")
    scene.stages.stage({watcher: ['[class,BROKER_INFO],[brokerID,"B2"];']})  # its last word
    scene.overlay.controllers["B3"].monitor.publish()
    scene.overlay.controllers["B2"].monitor.publish()
    scene.stages.stage({watcher: ['[class,BROKER_INFO],[brokerID,"B3"];']})


def test_brokers_beyond_a_stopped_one_are_found_and_are_asked_once(scene: Scene) -> None:
    watcher = scene.stages.person("B1", "watcher")
    watcher.subscribe("[class,eq,BROKER_INFO],[brokerID,eq,B3]")
    scene.stages.stage()
    scene.order("B2", "LIFECYCLE-STOP")
    scene.operator.publish("[class,NETWORK_DISCOVERY]")
    scene.stages.stage({watcher: ['[class,BROKER_INFO],[brokerID,"B3"];']})
    scene.order("B2", "LIFECYCLE-RESUME")
    scene.stages.stage()


def test_a_stopped_broker_gathers_no_news_of_itself(scene: Scene) -> None:
    near, far = scene.stages.person("B2", "near"), scene.stages.person("B1", "far")
    for watcher in (near, far):
        watcher.subscribe("[class,eq,BROKER_INFO],[brokerID,eq,B2]")
    scene.stages.stage()
    scene.order("B2", "LIFECYCLE-STOP")
    told = ['[class,BROKER_INFO],[brokerID,"B2"];']
    scene.stages.stage({near: told, far: told})  # its last word
    for _ in range(3):
        scene.operator.publish("[class,NETWORK_DISCOVERY]")
        scene.overlay.settle()
    scene.order("B2", "LIFECYCLE-RESUME")
    scene.stages.stage()


def test_shutdown_connect_and_disconnect_reach_the_broker_that_is_meant(scene: Scene) -> None:
    scene.order("B3", "OVERLAY-CONNECT", ",[broker,'padres://127.0.0.1:1/B9']")
    scene.order("B3", "OVERLAY-DISCONNECT", ",[broker,B2]")
    scene.order("B3", "OVERLAY-SHUTDOWN")
    scene.ask("B3", "SHUTDOWN")
    told = {name: one.actions for name, one in scene.overlay.told.items() if one.actions}
    assert told == {
        "B3": ["connect padres://127.0.0.1:1/B9", "disconnect B2", "shutdown", "shutdown"]
    }


@pytest.mark.parametrize(
    "command", ["OVERLAY-DANCE", "NOTHING-AT_ALL", "OVERLAY-CONNECT", "INJECTION-INJECT_UNSUB"]
)
def test_what_makes_no_sense_changes_nothing(scene: Scene, command: str) -> None:
    scene.order("B2", command)
    scene.ask("B2", "JUMP")
    scene.publisher.publish(AT_45)
    scene.stages.stage({scene.subscriber: [AT_45]})


def test_a_neighbour_that_is_said_to_be_shut_down_has_failed(scene: Scene) -> None:
    scene.order("B2", "OVERLAY-SHUTDOWN_REMOTEBROKER", ",[broker,B3]")
    assert not scene.overlay.routers["B2"].neighbours["B3"].usable


# Injection.


def test_messages_can_be_injected_and_undone_by_the_name_they_were_given(scene: Scene) -> None:
    scene.order("B2", "INJECTION-INJECT_ADV", ",[INJECTION_ID,i1]", b"[class,eq,sport]")
    assert offers(scene, "sport") == ["B2-broker"]
    scene.order("B2", "INJECTION-INJECT_SUB", ",[INJECTION_ID,i2]", b"[class,eq,weather]")
    assert wants(scene, "weather") == ["B2-broker"]
    scene.order("B2", "INJECTION-INJECT_UNADV", ",[INJECTION_ID,i1]")
    scene.order("B2", "INJECTION-INJECT_UNSUB", ",[INJECTION_ID,i2]")
    assert offers(scene, "sport") == wants(scene, "weather") == []


def test_an_injected_publication_goes_to_those_who_want_it(scene: Scene) -> None:
    scene.order("B2", "INJECTION-INJECT_ADV", ",[INJECTION_ID,i1]", STOCK.encode())
    scene.order("B2", "INJECTION-INJECT_PUB", "", AT_45.encode())
    scene.stages.stage({scene.subscriber: [AT_45]})


def test_flushing_forgets_what_waits_for_partners(scene: Scene) -> None:
    scene.subscriber.composite("{{[class,eq,stock],[price,<,10]}&{[class,eq,stock],[price,>,90]}}")
    scene.stages.stage()
    scene.publisher.publish("[class,stock],[price,5]")
    scene.overlay.settle()
    scene.order("B3", "INJECTION-FLUSH_PUB")
    scene.subscriber.take()
    scene.publisher.publish("[class,stock],[price,95]")
    scene.stages.stage({scene.subscriber: ["[class,stock],[price,95]"]})


def offers(scene: Scene, class_name: str) -> list[str]:
    advertised = scene.overlay.routers["B2"].tables.advertisements.values()
    return [one.hop for one in advertised if one.message.class_name == class_name]


def wants(scene: Scene, class_name: str) -> list[str]:
    wanted = scene.overlay.routers["B2"].tables.subscriptions.values()
    return [one.hop for one in wanted if one.message.class_name == class_name]


# Asking.


def test_looking_for_brokers_has_all_of_them_tell_how_they_are(scene: Scene) -> None:
    watcher = scene.watch("[class,eq,BROKER_INFO]")
    scene.operator.publish("[class,NETWORK_DISCOVERY]")
    scene.overlay.settle()
    found = {one["brokerID"]: one for one in (json.loads(e.payload) for e in watcher.got)}
    assert sorted(found) == ["B1", "B2", "B3"]
    assert found["B2"]["neighbours"] == ["B1", "B3"]
    assert found["B1"]["clients"] == ["B1-operator", "B1-p"]
    assert found["B1"]["status"] == "RUNNING"


def test_a_broker_with_very_many_clients_tells_how_it_is() -> None:
    overlay = Overlay([])
    router = overlay.broker("B1")
    controller = OverlayController(router, overlay.clock, Told(), info_full=False)
    watcher = overlay.person("B1", "watcher")
    watcher.subscribe("[class,eq,BROKER_INFO]")
    many = 1 + MAX_ANSWER_BYTES // 100
    for n in range(many):
        overlay.person("B1", f"{n:0100}")
    controller.monitor.publish()
    [envelope] = watcher.got
    told = json.loads(envelope.payload)
    assert len(told["clients"]) == many + 1
    assert told["subscriptions"] == len(router.tables.subscriptions)


def test_an_action_that_fails_does_not_keep_later_ones_from_happening() -> None:
    overlay = Overlay([])
    router = overlay.broker("B1")
    done: list[str] = []

    def fail() -> None:
        raise ValueError("clumsy")

    class Clumsy:
        name, durable, checked = "B1-clumsy", False, False

        def deliver(self, envelope: PadresEnvelope) -> int:
            router.defer(fail)
            router.defer(lambda: done.append(envelope.text))
            return ACCEPTED

    router.attach(Clumsy())
    router.receive(Clumsy(), PadresEnvelope(EnvelopeKind.SUBSCRIBE, "[class,eq,stock]"))
    publisher = overlay.person("B1", "p")
    publisher.advertise("[class,eq,stock]")
    with pytest.raises(ValueError, match="clumsy"):
        publisher.publish("[class,stock]")
    publisher.advertise("[class,eq,bond]")
    assert done == ["[class,stock]"]


@pytest.mark.parametrize(
    ("command", "status"), [("LIFECYCLE-STOP", "STOPPED"), ("OVERLAY-SHUTDOWN", "SHUTDOWN")]
)
def test_a_broker_s_last_word_is_what_becomes_of_it(
    scene: Scene, command: str, status: str
) -> None:
    watcher = scene.watch("[class,eq,BROKER_INFO]")
    scene.order("B3", command)
    scene.overlay.settle()
    told = [json.loads(one.payload) for one in watcher.got]
    assert [(one["brokerID"], one["status"]) for one in told] == [("B3", status)]


def test_a_broker_tells_how_much_came_in_since_it_last_did(scene: Scene) -> None:
    watcher = scene.watch("[class,eq,BROKER_INFO],[brokerID,eq,B1]")
    publisher = scene.overlay.person("B1", "p")
    publisher.advertise("[class,eq,counted]")
    for seconds, count in ((0, 0), (5, 20), (10, 10)):
        for _ in range(count):
            publisher.publish("[class,counted]")
        scene.overlay.pass_time(seconds)
        scene.ask("B1", "PUBLISH_BROKER_INFO")
        scene.overlay.settle()
    rates = [json.loads(one.payload)["publication_rate"] for one in watcher.got]
    # The question is a publication too, and so is what it told the last time.
    assert rates[1:] == [pytest.approx(22 / 5), pytest.approx(12 / 10)]


def test_a_broker_tells_how_it_is_every_so_often_when_it_is_told_to(scene: Scene) -> None:
    watcher = scene.watch("[class,eq,BROKER_INFO]")
    scene.overlay.pass_time(100)
    assert watcher.take() == []
    scene.ask("B3", "SET_PUBLICATION_INTERVAL", ",[interval,20]")
    scene.overlay.pass_time(61)
    assert len(watcher.take()) == 3
    scene.ask("B3", "SET_PUBLICATION_INTERVAL", ",[interval,0]")
    scene.overlay.pass_time(61)
    assert watcher.take() == []


@pytest.mark.parametrize(
    ("command", "text"), [("COMM_GET_ADV", STOCK), ("COMM_GET_SUB", "[class,eq,stock]")]
)
def test_what_a_broker_holds_can_be_asked_for(scene: Scene, command: str, text: str) -> None:
    watcher = scene.watch("[class,eq,MSG_SET_DELIVERY_CLASS],[COMM_SESSION_ID,eq,'7']")
    scene.ask("B1", command, ",[COMM_SESSION_ID,'7']")
    [answer] = watcher.got
    assert text in json.loads(answer.payload).values()


# Traces.


def test_the_way_of_a_traced_publication_is_told(scene: Scene) -> None:
    watcher = scene.watch("[class,eq,TRACEROUTE_MESSAGE],[TRACEROUTE_ID,eq,t1]")
    scene.publisher.publish(AT_45, trace="t1")
    scene.stages.stage(
        {
            scene.subscriber: [AT_45],
            watcher: [step("B1", "B2"), step("B2", "B3"), step("B3", "B3-s")],
        }
    )


def test_a_broker_can_be_told_to_publish_something_and_trace_it(scene: Scene) -> None:
    watcher = scene.watch("[class,eq,TRACEROUTE_MESSAGE],[TRACEROUTE_ID,eq,t1]")
    scene.order("B2", "INJECTION-INJECT_ADV", "", STOCK.encode())
    scene.ask("B2", "TRACE_PUBLICATION_MSG", ",[TRACEROUTE_ID,t1]", AT_45.encode())
    scene.stages.stage({scene.subscriber: [AT_45], watcher: [step("B2", "B3"), step("B3", "B3-s")]})


def test_the_way_of_a_traced_subscription_is_told(scene: Scene) -> None:
    watcher = scene.watch("[class,eq,TRACEROUTE_MESSAGE],[TRACEROUTE_ID,eq,t2]")
    scene.ask("B3", "TRACE_SUBSCRIPTION_MSG", ",[TRACEROUTE_ID,t2]")
    scene.operator.publish(
        "[class,BROKER_MONITOR],[brokerID,B3],[command,TRACE_SUBSCRIPTION_MSG],[TRACEROUTE_ID,t2]",
        payload=b"[class,eq,stock],[price,<,9]",
    )
    scene.stages.stage({watcher: [step("B2", "B1", "t2"), step("B3", "B2", "t2")]})


def test_everything_is_traced_where_that_is_set(scene: Scene) -> None:
    watcher = scene.watch("[class,eq,TRACEROUTE_MESSAGE],[from,eq,B1]")
    scene.overlay.routers["B1"].trace_all = True
    identity = scene.publisher.publish(AT_45)
    scene.stages.stage({scene.subscriber: [AT_45], watcher: [step("B1", "B2", identity)]})


def step(sender: str, receiver: str, trace: str = "t1") -> str:
    return (
        f'[class,TRACEROUTE_MESSAGE],[from,"{sender}"],[to,"{receiver}"],[TRACEROUTE_ID,"{trace}"];'
    )


def test_undoing_a_stranger_s_message_is_an_error(scene: Scene) -> None:
    identity = scene.publisher.advertise("[class,eq,sport]")
    with pytest.raises(Exception, match="unknown advertisement"):
        scene.operator.say(EnvelopeKind.UNADVERTISE, identity)
    with pytest.raises(Exception, match="unknown subscription"):
        scene.operator.say(EnvelopeKind.UNSUBSCRIBE, "B1-M99")
    with pytest.raises(Exception, match="unknown composite"):
        scene.operator.say(EnvelopeKind.UNCOMPOSITE, "B1-M99")
