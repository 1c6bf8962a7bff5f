"""Suites seed-lifecycle, agent-lifecycle, lifecycle, promotion and seed-tick: states and events."""

from __future__ import annotations

from typing import Final

from tests.conformance.backendai_case import Case, Json, Operation, UnknownCase, known

from tenure_core.admission import lifecycle, member_events, node_events
from tenure_core.admission.lifecycle import STEPS, Outcome, Promotion, Stage
from tenure_core.admission.member_events import Effect, MemberEvent
from tenure_core.admission.node_events import NodeEffect, NodeEvent, NodeState
from tenure_core.admission.tick_clock import TickClock, tick

STAGES: Final = {
    "PENDING": Stage.WAITING,
    "DEPRIORITIZING": Stage.DEMOTED,
    "RESERVED": Stage.HELD,
    "SCHEDULED": Stage.SCHEDULED,
    "PREPARING": Stage.PREPARING,
    "BUILDING": Stage.BUILDING,
    "PULLING": Stage.PULLING,
    "PREPARED": Stage.PREPARED,
    "CREATING": Stage.STARTING,
    "RUNNING": Stage.ACTIVE,
    "RUNNING_DEGRADED": Stage.DEGRADED,
    "RESTARTING": Stage.RESTARTING,
    "RESIZING": Stage.RESIZING,
    "SUSPENDED": Stage.SUSPENDED,
    "PREEMPTED": Stage.PREEMPTED,
    "RESCHEDULING": Stage.REQUEUING,
    "TERMINATING": Stage.STOPPING,
    "TERMINATED": Stage.DONE,
    "ERROR": Stage.FAILED,
    "CANCELLED": Stage.CANCELLED,
}
STATUSES: Final = {stage: status for status, stage in STAGES.items()}

_EVENTS: Final = {
    "scheduled": MemberEvent.SCHEDULED,
    "preparing": MemberEvent.PREPARING,
    "pulling": MemberEvent.PULLING,
    "creating": MemberEvent.CREATING,
    "started": MemberEvent.STARTED,
    "start-rpc-ok": MemberEvent.START_CONFIRMED,
    "start-rpc-failed": MemberEvent.START_FAILED,
    "terminated": MemberEvent.ENDED,
    "destroy": MemberEvent.STOP,
    "destroy-forced": MemberEvent.FORCE_STOP,
    "destroy-rpc-failed": MemberEvent.STOP_FAILED,
}
_EFFECTS: Final = {
    Effect.RESERVE: "agent.occupied += requested",
    Effect.NOTE_SCHEDULED: "status_info = scheduled",
    Effect.NOTE_START_FAILED: "status_info = failed-to-start",
    Effect.RECORD_PLACE: "container id, ports and host stored",
    Effect.RELEASE_REQUESTED: "agent.occupied -= requested",
    Effect.RELEASE_HELD: "agent.occupied -= kernel slots",
    Effect.UNCOUNT: "key.concurrency -= 1",
    Effect.RECOUNT: "key.concurrency recalculated from kernel rows",
    Effect.RECOUNT_ALL: "full usage recalculation",
    Effect.ANNOUNCE_CANCELLED: "event kernel_cancelled",
    Effect.ANNOUNCE_STOPPING: "event kernel_terminating",
    Effect.ANNOUNCE_ENDED: "event kernel_terminated",
    Effect.SEND_STOP: "rpc destroy",
    Effect.NO_COMMAND: "no rpc",
}


def _kernel_event(case: Json) -> Json:
    known(case, {"status", "event"})
    found = member_events.react(STAGES[case["status"]], _EVENTS[case["event"]])
    return {
        "status": STATUSES[found.stage],
        "effects": [_EFFECTS[effect] for effect in found.effects],
    }


_UP: Final = ["PENDING", "PREPARING", "BUILDING", "PULLING", "RUNNING"]


def _kernel_event_better(case: Case) -> None:
    """Ends absorb, stopping sticks, progress only advances, all that lives can be ended, once."""
    status, event = case.input["status"], case.input["event"]
    answer = _kernel_event(case.input)
    after = answer["status"]
    if status in ("TERMINATED", "CANCELLED"):
        assert answer == {"status": status, "effects": []}
    elif status == "TERMINATING":
        assert after in ("TERMINATING", "TERMINATED", "ERROR")
        assert after != status or answer["effects"] == []
    elif event in ("destroy", "destroy-forced"):
        assert after in ("TERMINATING", "TERMINATED", "CANCELLED")
        assert not any(effect.startswith("refused") for effect in answer["effects"])
        again = _kernel_event({"status": after, "event": event})
        assert again["effects"] == [] or again["status"] == "TERMINATED"
    elif status in _UP and after in _UP:
        assert _UP.index(after) >= _UP.index(status)
    else:
        assert after in (status, "TERMINATED", "CANCELLED")


_SETS: Final = {
    "agent_occupying": member_events.OCCUPIES_NODE,
    "user_occupying": member_events.OCCUPIES_OWNER,
    "dead": member_events.GONE,
    "session.resource_occupied": lifecycle.LEASE_HOLDS,
    "session.terminatable": lifecycle.LEASE_STOPPABLE,
    "session.force_terminatable": lifecycle.LEASE_FORCIBLE,
    "session.preemption_victim": lifecycle.LEASE_PREEMPTIBLE,
    "session.terminal": lifecycle.ENDED,
    "session.kernel_awaiting": lifecycle.LEASE_AWAITS_MEMBERS,
    "kernel.resource_occupied": lifecycle.MEMBER_USES,
    "kernel.resource_requested": lifecycle.MEMBER_RESERVES,
    "kernel.terminal": lifecycle.ENDED,
    "kernel.pre_prepared": lifecycle.MEMBER_UNPREPARED,
    "kernel.pre_running": lifecycle.MEMBER_UNSTARTED,
    "kernel.terminatable": lifecycle.MEMBER_STOPPABLE,
}


def _status_set(case: Json) -> Json:
    known(case, {"set"})
    return {"members": sorted(STATUSES[stage] for stage in _SETS[case["set"]])}


_HANDLERS: Final = {
    "schedule-sessions": "schedule",
    "deprioritize-sessions": "demote",
    "check-precondition": "prepare",
    "start-sessions": "start",
    "terminate-sessions": "stop",
    "sweep-sessions": "end overdue waits",
    "release-reserved-sessions": "admit held",
    "preempt-sessions": "preempt",
    "reschedule-sessions": "requeue",
    "sweep-stale-kernels": "end stale members",
}
OUTCOMES: Final = {
    "success": Outcome.SUCCESS,
    "need_retry": Outcome.NEED_RETRY,
    "expired": Outcome.EXPIRED,
    "give_up": Outcome.GIVE_UP,
}


def step_of(handler: str) -> str:
    """Return our name of one of the ancestor's handlers."""
    if handler not in _HANDLERS:
        raise UnknownCase(f"handler {handler}")
    return _HANDLERS[handler]


def _handler_transitions(case: Json) -> Json:
    known(case, {"handler"})
    step = STEPS[step_of(case["handler"])]
    outcomes = dict(OUTCOMES)
    if step.leases is None:
        outcomes = {"success": Outcome.SUCCESS, "failure": Outcome.FAILURE}
    return {
        "session_statuses": _statuses(step.leases),
        "kernel_statuses": _statuses(step.members),
        "transitions": {name: _change(step, outcome) for name, outcome in outcomes.items()},
    }


def _statuses(stages: tuple[Stage, ...] | None) -> Json:
    return None if stages is None else [STATUSES[stage] for stage in stages]


def _change(step: lifecycle.Step, outcome: Outcome) -> Json:
    change = step.written(outcome)
    if change is None:
        return None
    members = None if change.members is None else STATUSES[change.members]
    if step.leases is None:
        return {"kernel": members}
    return {"session": None if change.lease is None else STATUSES[change.lease], "kernel": members}


_PROMOTIONS: Final = {
    Promotion.SCHEDULED: "promote-to-scheduled",
    Promotion.PREPARED: "promote-to-prepared",
    Promotion.ACTIVE: "promote-to-running",
    Promotion.ENDED: "promote-to-terminated",
    Promotion.MEMBER_DIED: "detect-termination",
}


def _promotion(case: Json) -> Json:
    known(case, {"session_status", "kernel_statuses"})
    found = lifecycle.promotion(
        STAGES[case["session_status"]], [STAGES[status] for status in case["kernel_statuses"]]
    )
    return {"matching_rules": [] if found is None else [_PROMOTIONS[found]]}


def _promotion_better(case: Case) -> None:
    """Exactly one rule applies, and a dead kernel wins over any promotion."""
    dead = {"TERMINATED", "CANCELLED"} & set(case.input["kernel_statuses"])
    rules = _promotion(case.input)["matching_rules"]
    assert len(rules) == 1
    assert rules[0] in case.expect["matching_rules"]
    assert (rules == ["detect-termination"]) == bool(dead)


_NODE_STATES: Final = {
    "ALIVE": NodeState.ALIVE,
    "LOST": NodeState.LOST,
    "RESTARTING": NodeState.RESTARTING,
    "TERMINATED": NodeState.EXITED,
}
_NODE_EVENTS: Final = {
    "heartbeat": (NodeEvent.HEARTBEAT, True),
    "heartbeat-timeout": (NodeEvent.SILENCE, True),
    "agent-exit": (NodeEvent.EXIT, True),
    "agent-restarting": (NodeEvent.RESTART, True),
    "heartbeat-with-unknown-group": (NodeEvent.HEARTBEAT_OF_UNKNOWN_POOL, True),
    "heartbeat-with-unknown-group-and-no-default": (NodeEvent.HEARTBEAT_OF_UNKNOWN_POOL, False),
}
_NODE_EFFECTS: Final = {
    NodeEffect.CREATE: "row created",
    NodeEffect.STORE_CAPACITY: "capacity stored",
    NodeEffect.REFRESH: "capacity and address refreshed when changed",
    NodeEffect.JOIN_DEFAULT_POOL: "joins the default group",
    NodeEffect.REFUSE: "error",
    NodeEffect.ANNOUNCE_RETURN: "event agent-started (revived)",
    NodeEffect.CLEAR_LOST_TIME: "lost time cleared",
    NodeEffect.SET_LOST_TIME: "lost time set",
    NodeEffect.LOG_ONLY: "error log only",
}


def _agent_event(case: Json) -> Json:
    known(case, {"profile", "status", "event"})
    state = None if case["status"] is None else _NODE_STATES[case["status"]]
    event, default_pool = _NODE_EVENTS[case["event"]]
    found = node_events.react(
        state,
        event,
        default_pool=default_pool,
        restart_ends_with_heartbeat=case["profile"] != "seed",
    )
    after = {state: status for status, state in _NODE_STATES.items()}
    return {
        "status": "(refused)" if found.state is None else after[found.state],
        "effects": [_NODE_EFFECTS[effect] for effect in found.effects],
    }


def _agent_event_better(case: Case) -> None:
    """After the grace time leases of a lost node are lost and freed; a return is reconciled."""
    state = _NODE_STATES[case.input["status"]]
    lost = node_events.react(state, _NODE_EVENTS[case.input["event"]][0])
    assert lost.state is NodeState.LOST
    fenced = node_events.react(lost.state, NodeEvent.GRACE_OVER)
    assert NodeEffect.DECLARE_LEASES_LOST in fenced.effects
    assert NodeEffect.FREE_ROOM in fenced.effects
    back = node_events.react(fenced.state, NodeEvent.HEARTBEAT)
    assert back.state is NodeState.ALIVE
    assert NodeEffect.RECONCILE in back.effects


def _tick(case: Json) -> Json:
    known(case, {"steps"})
    clock = TickClock()
    replies = []
    for step in case["steps"]:
        known(step, {"member", "redis_time", "interval"})
        found = tick(clock, step["member"], step["redis_time"], step.get("interval", 60))
        clock = found.clock
        replies.append({"delay": found.delay, "sync_time": found.sync})
    return {"replies": replies}


OPERATIONS: Final = {
    "kernel_event": Operation(_kernel_event, _kernel_event_better),
    "status_set": Operation(_status_set),
    "handler_transitions": Operation(_handler_transitions),
    "promotion": Operation(_promotion, _promotion_better),
    "agent_event": Operation(_agent_event, _agent_event_better),
    "tick": Operation(_tick),
}
