"""Who may call what: every call has its line, and nobody else may."""

from __future__ import annotations

import pytest

from tenure.admission.v1 import admission_pb2
from tenure_admission.servicer import PERMISSIONS, SERVICE
from tenure_core.errors import Forbidden
from tenure_runtime.rpc.identity import Identity, Role

METHODS = [
    method.name for method in admission_pb2.DESCRIPTOR.services_by_name["AdmissionService"].methods
]
OF_LEADERS = {"RecordTransitions", "FenceEpoch", "SealSecrets"}
OF_OPERATORS = {"SetQuota", "DeleteQuota"}
OF_MEMBERS = set(METHODS) - OF_LEADERS - OF_OPERATORS - {"VerifyUsage"}
ALLOWED = {
    Role.USER: OF_MEMBERS,
    Role.PROJECT_ADMIN: OF_MEMBERS,
    Role.DOMAIN_ADMIN: OF_MEMBERS,
    Role.OPERATOR: set(METHODS) - OF_LEADERS,
    Role.SERVICE: set(METHODS) - OF_OPERATORS,
    Role.AGENT: {"GetServiceInfo"},
}


def test_every_call_of_the_contract_is_in_the_table() -> None:
    listed = {method.rpartition("/")[2] for method in PERMISSIONS.roles_of_method}

    assert listed == set(METHODS)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("method", METHODS)
def test_each_role_may_call_what_the_table_says(role: Role, method: str) -> None:
    caller = Identity("someone", frozenset({role}))

    if method in ALLOWED[role]:
        PERMISSIONS.check(caller, f"/{SERVICE}/{method}")
    else:
        with pytest.raises(Forbidden):
            PERMISSIONS.check(caller, f"/{SERVICE}/{method}")
