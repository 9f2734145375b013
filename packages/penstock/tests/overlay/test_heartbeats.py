"""Signs of life between neighbours, in all seven configurations, on a clock of their own."""

from __future__ import annotations

import pytest

from penstock.overlay.heartbeats import HeartbeatSettings
from penstock.overlay.rules import RoutingRules
from tests.overlay.configurations import ALL
from tests.overlay.simulation import Overlay, Person
from tests.overlay.stages import Stages

PULSE = HeartbeatSettings(enabled=True, interval=3, timeout=5, threshold=3)
FAILURES = "[class,eq,HEARTBEAT_MANAGER],[detectorID,isPresent,x],[type,str-prefix,'FAILURE']"


@pytest.fixture(params=ALL.values(), ids=list(ALL))
def rules(request: pytest.FixtureRequest) -> RoutingRules:
    chosen: RoutingRules = request.param
    return chosen


def watched(rules: RoutingRules, pulse: HeartbeatSettings = PULSE) -> tuple[Stages, Person, Person]:
    """B1, B2 and B3 in a line, somebody who watches at B3, and somebody who gives orders at B1."""
    stages = Stages(Overlay([("B1", "B2"), ("B2", "B3")], rules, pulse=pulse))
    watcher, operator = stages.person("B3", "watcher"), stages.person("B1", "operator")
    watcher.subscribe(FAILURES)
    operator.advertise("[class,eq,BROKER_CONTROL],[brokerID,isPresent,x],[command,isPresent,x]")
    operator.advertise(
        "[class,eq,BROKER_MONITOR],[brokerID,isPresent,x],[command,isPresent,x],"
        "[enabled,isPresent,x],[interval,>,0],[timeout,>,0],[threshold,>,0]"
    )
    operator.advertise("[class,eq,GLOBAL_FD],[flag,isPresent,x]")
    stages.stage()
    return stages, watcher, operator


def failure(detector: str, detected: str, what: str) -> str:
    return (
        f'[class,HEARTBEAT_MANAGER],[detectorID,"{detector}"],[detectedID,"{detected}"],'
        f'[type,"FAILURE_{what}"];'
    )


def order(operator: Person, broker: str, command: str) -> None:
    operator.publish(f"[class,BROKER_CONTROL],[brokerID,{broker}],[command,{command}]")


def test_while_all_answer_nothing_is_said(rules: RoutingRules) -> None:
    stages, *_ = watched(rules)
    stages.overlay.pass_time(60)
    stages.stage()


def test_a_broker_that_is_stopped_is_detected_and_cleared_when_it_is_resumed(
    rules: RoutingRules,
) -> None:
    stages, watcher, operator = watched(rules)
    order(operator, "B1", "LIFECYCLE-STOP")
    stages.stage()
    stages.overlay.pass_time(8)  # two answers are missing
    stages.stage()
    stages.overlay.pass_time(10)
    stages.stage({watcher: [failure("B2", "B1", "DETECTED")]})
    stages.overlay.pass_time(60)
    stages.stage()  # once, and not again and again
    order(operator, "B1", "LIFECYCLE-RESUME")
    stages.stage()
    stages.overlay.pass_time(3)
    stages.stage({watcher: [failure("B2", "B1", "CLEARED")]})
    stages.overlay.pass_time(60)
    stages.stage()


def test_a_link_that_breaks_is_detected_from_both_ends(rules: RoutingRules) -> None:
    stages, watcher, _ = watched(rules)
    stages.overlay.cut("B2", "B3")
    stages.overlay.pass_time(30)
    stages.stage({watcher: [failure("B3", "B2", "DETECTED")]})
    stages.overlay.mend("B2", "B3")
    stages.overlay.pass_time(3)
    # What B2 had to say meanwhile waited for the link.
    cleared = [failure("B2", "B3", "CLEARED"), failure("B3", "B2", "CLEARED")]
    stages.stage({watcher: [failure("B2", "B3", "DETECTED"), *cleared]})


def test_heartbeats_can_be_set_for_one_broker_while_it_runs(rules: RoutingRules) -> None:
    stages, watcher, operator = watched(rules)
    operator.publish(
        "[class,BROKER_MONITOR],[brokerID,B2],[command,SET_FD_PARAMS],"
        "[enabled,true],[interval,1],[timeout,1],[threshold,1]"
    )
    stages.stage()
    pulses = {name: one.heartbeats.settings for name, one in stages.overlay.controllers.items()}
    assert pulses == {"B1": PULSE, "B2": HeartbeatSettings(True, 1, 1, 1), "B3": PULSE}
    order(operator, "B1", "LIFECYCLE-STOP")
    stages.overlay.pass_time(3)
    stages.stage({watcher: [failure("B2", "B1", "DETECTED")]})


def test_heartbeats_can_be_switched_for_all(rules: RoutingRules) -> None:
    stages, _, operator = watched(rules)
    operator.publish("[class,GLOBAL_FD],[flag,'false']")
    stages.stage()
    order(operator, "B1", "LIFECYCLE-STOP")
    stages.overlay.pass_time(60)
    stages.stage()
    order(operator, "B1", "LIFECYCLE-RESUME")
    operator.publish("[class,GLOBAL_FD],[flag,'true']")
    stages.stage()
    assert all(one.heartbeats.settings.enabled for one in stages.overlay.controllers.values())


def test_a_setting_that_makes_no_sense_changes_nothing(rules: RoutingRules) -> None:
    stages, _, operator = watched(rules)
    operator.publish("[class,BROKER_MONITOR],[brokerID,B2],[command,SET_FD_PARAMS],[threshold,0.5]")
    stages.stage()
    assert stages.overlay.controllers["B2"].heartbeats.settings == PULSE
