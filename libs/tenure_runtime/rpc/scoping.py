"""Which calls are open to a credential that is limited: to reading, or to some pools or projects.

Decides by the method's name, closed by default: a new verb is no reading, and a new call is closed
to what is limited to pools or projects until it is named here. Whether a lease lies inside is left
to admission, which alone knows leases by pool and project.
"""

from __future__ import annotations

import re
from typing import Final

from tenure_core.errors import Forbidden
from tenure_core.identity.grants import Scope

_READING: Final = re.compile(
    r"(Get|List|Watch|Wait|Explain|Verify|Find|Predict|WhatIf|StreamLogs|IssueToken)\w*"
)
_OPEN_TO_LIMITED: Final = frozenset(
    {
        # Admission looks at each lease.
        *("CreateLease", "BatchCreateLeases", "GetLease", "ListLeases", "WatchLeases"),
        *("CancelLease", "UpdateLease", "ConfirmLeases", "WaitLease", "ExplainLease"),
        # They tell of the caller itself only; keys are held to the projects of who makes them.
        *("ListQuotas", "GetUsage", "IssueToken", "GetSigningKeys"),
        *("CreateApiKey", "ListApiKeys", "RotateApiKey", "RevokeApiKey"),
        # The registry looks at whose work it is.
        "StreamLogs",
        # They tell of no lease.
        *("GetServiceInfo", "GetAvailability", "FindEarliestStart", "GetTableStatus", "ListNodes"),
        *("ListMaintenanceWindows", "GetPool", "ListPools", "GetPolicy", "ListPolicies"),
        *("GetLeader", "GetAgent", "ListAgents", "GetGroup", "ListGroups"),
    }
)


def is_reading(method: str) -> bool:
    """Say whether a method (`/package.Service/Name`, or its name) changes nothing."""
    return _READING.fullmatch(method.rpartition("/")[2]) is not None


def is_open_to_limited(method: str) -> bool:
    """Say whether a credential limited to pools or projects may call a method."""
    return method.rpartition("/")[2] in _OPEN_TO_LIMITED


def check(scope: Scope, method: str) -> None:
    """Raise Forbidden SCOPE_FORBIDDEN when the method is closed to a credential of this scope."""
    if scope.read_only and not is_reading(method):
        raise Forbidden("SCOPE_FORBIDDEN", f"A read-only key may not call {method}.", method=method)
    if scope.limits_leases and not is_open_to_limited(method):
        text = f"A key that is limited to pools or projects may not call {method}."
        raise Forbidden("SCOPE_FORBIDDEN", text, method=method)
