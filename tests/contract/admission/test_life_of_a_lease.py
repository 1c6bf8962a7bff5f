"""One lease from creation to its end, through every call that it takes."""

from __future__ import annotations

from tests.contract.admission.harness import Admission, State, charged, transition

from tenure.admission.v1 import admission_pb2 as calls


async def test_a_lease_is_created_charged_run_and_ended(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    created = await user.create()
    await leader(calls.FenceEpochRequest(scope="pool/default", epoch=1))
    steps = [
        transition(created, State.STATE_QUEUED, attempt=0),
        charged(transition(created, State.STATE_SCHEDULED, version=2, attempt=1), 60),
        transition(created, State.STATE_STARTING, version=3, attempt=1),
        transition(created, State.STATE_ACTIVE, version=4, attempt=1),
        transition(created, State.STATE_DONE, version=5, attempt=1, exit_code=0),
    ]
    request = calls.RecordTransitionsRequest(scope="pool/default", epoch=1, transitions=steps)

    verdicts = (await leader(request)).verdicts

    assert [verdict.reason for verdict in verdicts] == [""] * 5
    ended = await user.get(created)
    assert (
        ended.state,
        ended.version,
        ended.attempt,
        ended.exit_code,
    ) == (State.STATE_DONE, 6, 1, 0)
    assert [step.transition_id for step in steps] == [
        entry.transition_id for entry in ended.history
    ]
    assert not ended.HasField("charge_interval")
    assert ended.HasField("end_time")
    assert await admission.store.quotas.drifts() == []
