"""The table of who may call what, as docs/security.md shows it. Run me to print it anew."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from tenure_runtime.rpc.identity import Permissions, Role

SERVICES = ("admission", "slottable", "scheduler", "registry", "autoscaler")
CONTRACTS = (*SERVICES, "audit", "notices")
"""Each service's own, the one that all of them serve, and admission's second."""
_MODULES = {"audit": "tenure_runtime.audit", "notices": "tenure_admission.notices"}
BEGIN = "<!-- begin: who may call what -->"
END = "<!-- end: who may call what -->"


def table_of(service: str) -> tuple[str, Permissions]:
    """Return the full name of a contract and its table."""
    module = importlib.import_module(f"{_MODULES.get(service, f'tenure_{service}')}.servicer")
    assert isinstance(module.PERMISSIONS, Permissions)
    return module.SERVICE, module.PERMISSIONS


def markdown() -> str:
    """Return the table for the document."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "| service | call | " + " | ".join(role.value for role in Role) + " |"
    yield "|---" * (2 + len(Role)) + "|"
    for service in CONTRACTS:
        _, permissions = table_of(service)
        for method, roles in sorted(permissions.roles_of_method.items()):
            marks = " | ".join("yes" if role in roles else "" for role in Role)
            yield f"| {service} | {method.rpartition('/')[2]} | {marks} |"


if __name__ == "__main__":
    print(markdown(), end="")
