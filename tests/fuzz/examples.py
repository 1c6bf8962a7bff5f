"""A good request to each call that checks much before it acts: what mutations start from."""

from __future__ import annotations

from typing import Any, Final

LEASE: Final = {
    "pool": "default",
    "terms": {"bestEffort": {}},
    "nodeCount": 1,
    "amounts": {"cpu": 1_000},
    "duration": "60s",
    "work": {"command": ["true"]},
    "labels": {"team": "a"},
}
INTERVAL: Final = {"startTime": "2027-01-01T00:00:00Z", "endTime": "2027-01-01T01:00:00Z"}
DEMAND: Final = {"nodeCount": 1, "amounts": {"cpu": 1_000}}
AS_LEADER: Final = {"scope": "pool/fuzz", "epoch": "1"}

EXAMPLES: Final[dict[str, Any]] = {
    "CreateLease": {"lease": LEASE},
    "BatchCreateLeases": {"requests": [{"lease": LEASE}, {"lease": LEASE}]},
    "UpdateLease": {
        "lease": {"name": "leases/booked", "duration": "90s"},
        "updateMask": "duration",
    },
    "WaitLease": {"name": "leases/booked", "timeout": "0.1s"},
    "SetQuota": {
        "quota": {
            "name": "quotas/fuzz",
            "owner": "nobody",
            "limits": {"cpu": 5_000},
            "budgets": {"cpu": 9_000},
            "period": 2,
            "weeklySpans": [{"day": 5, "startOffset": "72000s", "duration": "36000s"}],
            "timeZone": "Europe/Berlin",
        }
    },
    "CreateApiKey": {"apiKey": {"caller": "fuzz", "roles": [1], "scope": {"pools": ["default"]}}},
    "RotateApiKey": {"name": "apiKeys/fuzz", "overlap": "60s"},
    "SetSettings": {"settings": {"email": "fuzz@example.org", "kinds": [1]}},
    "FindEarliestStart": {"pool": "default", "demand": DEMAND, "duration": "60s"},
    "GetAvailability": {"pool": "default", "demand": DEMAND, "interval": INTERVAL},
    "CreateMaintenanceWindow": {
        "maintenanceWindow": {"pool": "default", "nodes": ["agent-1"], "interval": INTERVAL}
    },
    "CreatePool": {"pool": {"name": "pools/fuzz", "policy": "policies/default"}},
    "CreatePolicy": {
        "policy": {
            "name": "policies/fuzz",
            "ordering": "priority:10/drf:project",
            "weights": {"ann": 2},
            "ageDuration": "3600s",
            "halfLifeDuration": "86400s",
        }
    },
    "ExplainWaiting": {"pool": "default", "lease": "leases/waits", "nodeCountMax": 1},
    "UpdatePolicy": {"policy": {"name": "policies/default"}, "updateMask": "depth"},
    "WhatIf": {"pool": "default", "nodeCount": 1, "amounts": {"cpu": 1_000}, "duration": "60s"},
    "RecordTransitions": {
        **AS_LEADER,
        "transitions": [
            {"transitionId": "1.a.1", "lease": "leases/waits", "version": "1", "state": 2}
        ],
    },
    "SubmitPlan": {**AS_LEADER, "groups": [{"groupId": "g", "operations": [{"release": {}}]}]},
    "SetCapacity": {
        **AS_LEADER,
        "pool": "fuzz",
        "nodes": [{"name": "nodes/n1", "capacity": [{"amounts": {"cpu": 4_000}}]}],
    },
    "DispatchCommands": {
        **AS_LEADER,
        "commands": [
            {
                "commandId": "a.1.0.stop.1",
                "agent": "agents/agent-1",
                "lease": "leases/a",
                "attempt": 1,
                "validDuration": "60s",
                "stop": {},
            }
        ],
    },
    "CreateGroup": {
        "group": {
            "name": "groups/fuzz",
            "kind": 1,
            "pool": "default",
            "sizeMax": 1,
            "provider": "process",
            "amounts": {"cpu": 1_000},
            "dryRun": True,
        }
    },
    "Connect": {
        "hello": {
            "agent": "agents/agent-1",
            "incarnation": "i1",
            "version": "0.1.0",
            "protocolVersion": 1,
            "pool": "default",
            "capacity": {"cpu": 1_000},
        }
    },
}
