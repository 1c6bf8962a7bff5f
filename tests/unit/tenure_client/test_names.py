"""The package offers what it lists, and loads it when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tenure.client


def test_every_name_that_is_listed_is_there():
    for name in tenure.client.__all__:
        assert getattr(tenure.client, name).__name__ == name
    assert set(tenure.client.__all__) == set(tenure.client._MODULE_OF)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"tenure\.client has no nothing"):
        _ = tenure.client.nothing


def test_a_node_loads_no_grpc_for_a_call():
    program = (
        "import sys, tenure.client.remote_call;"
        "print(sorted({'grpc', 'google.protobuf', 'opentelemetry'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
