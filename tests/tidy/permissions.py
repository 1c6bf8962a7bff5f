"""The table of who may call what, as docs/security.md shows it. Run me to print it anew."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from tenure_runtime.rpc.identity import Permissions, Role
from tenure_runtime.rpc.scoping import is_open_to_limited, is_reading

SERVICES = ("admission", "slottable", "scheduler", "registry", "autoscaler")
MODULES = {
    **{service: f"tenure_{service}.servicer" for service in SERVICES},
    "identity": "tenure_admission.servicer_identity",
    "audit": "tenure_runtime.audit.servicer",
    "notices": "tenure_admission.notices.servicer",
}
"""Where each contract's table is: audit is served by all, identity and notices by admission."""
CONTRACTS = {
    **{service: f"tenure.{service}.v1.{service}_pb2" for service in MODULES},
    "identity": "tenure.admission.v1.identity_pb2",
}
SERVED_BY = {**{service: service for service in SERVICES}, "audit": "admission"}
SERVED_BY |= {"identity": "admission", "notices": "admission"}
"""A service that serves each contract."""
BEGIN = "<!-- begin: who may call what -->"
END = "<!-- end: who may call what -->"


def table_of(service: str) -> tuple[str, Permissions]:
    """Return the full name of a contract and its table."""
    module = importlib.import_module(MODULES[service])
    assert isinstance(module.PERMISSIONS, Permissions)
    return module.SERVICE, module.PERMISSIONS


def markdown() -> str:
    """Return the table for the document."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield (
        "| service | call | " + " | ".join(role.value for role in Role) + " | read-only | limited |"
    )
    yield "|---" * (4 + len(Role)) + "|"
    for service in MODULES:
        _, permissions = table_of(service)
        for method, roles in sorted(permissions.roles_of_method.items()):
            marks = " | ".join("yes" if role in roles else "" for role in Role)
            scopes = " | ".join(
                "yes" if is_open(method) else "" for is_open in (is_reading, is_open_to_limited)
            )
            yield f"| {service} | {method.rpartition('/')[2]} | {marks} | {scopes} |"


if __name__ == "__main__":
    print(markdown(), end="")
