"""Every call of every contract has its roles, and docs/security.md shows them as they are."""

from __future__ import annotations

import importlib

import pytest
from tests.tidy.permissions import BEGIN, CONTRACTS, END, markdown, table_of
from tests.tidy.source_reasons import REPOSITORY

from tenure_runtime.rpc.identity import Role


@pytest.mark.parametrize("service", CONTRACTS)
def test_every_method_of_the_contract_has_its_roles(service: str) -> None:
    """A method that is left out is closed to everyone, which its author would not have meant."""
    full_name, permissions = table_of(service)
    contract = importlib.import_module(CONTRACTS[service])
    [descriptor] = contract.DESCRIPTOR.services_by_name.values()
    assert descriptor.full_name == full_name
    methods = {f"/{full_name}/{method.name}" for method in descriptor.methods}
    assert set(permissions.roles_of_method) == methods
    assert all(permissions.roles_of_method.values())


@pytest.mark.parametrize("service", CONTRACTS)
def test_only_the_registrys_stream_is_for_agents(service: str) -> None:
    """An agent's key lies on a node where others' work runs: it must open as little as can be."""
    _, permissions = table_of(service)
    open_to_agents = {
        method.rpartition("/")[2]
        for method, roles in permissions.roles_of_method.items()
        if Role.AGENT in roles
    }
    assert open_to_agents <= {"Connect", "GetServiceInfo"}


@pytest.mark.parametrize("service", CONTRACTS)
def test_people_do_not_write_as_leaders(service: str) -> None:
    """Calls that carry an epoch are for leaders, whatever else an operator may do."""
    full_name, permissions = table_of(service)
    contract = importlib.import_module(CONTRACTS[service])
    [descriptor] = contract.DESCRIPTOR.services_by_name.values()
    for method in descriptor.methods:
        if "epoch" in method.input_type.fields_by_name:
            roles = permissions.roles_of_method[f"/{full_name}/{method.name}"]
            assert roles == {Role.SERVICE}, method.name


def test_the_document_shows_the_tables_as_they_are() -> None:
    text = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    shown = text.partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == markdown().strip(), "run tests/tidy/permissions.py and paste"
