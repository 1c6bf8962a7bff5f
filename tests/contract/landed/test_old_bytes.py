"""What clients of the last landing send is understood, and what they are sent they understand."""

from __future__ import annotations

import importlib

import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import Message
from tests.contract.landed import image

for _name in image.file_names():
    importlib.import_module(_name.removesuffix(".proto").replace("/", ".") + "_pb2")


def todays_class(full_name: str) -> type[Message]:
    today = descriptor_pool.Default().FindMessageTypeByName(full_name)
    return message_factory.GetMessageClass(today)


def as_json(message: Message) -> str:
    return json_format.MessageToJson(message, sort_keys=True)


def test_the_image_has_the_contracts() -> None:
    assert len(image.messages()) > 200
    assert len(image.methods()) > 70


@pytest.mark.parametrize("full_name", image.messages())
def test_old_bytes_parse_to_the_same_fields_and_go_back_unchanged(full_name: str) -> None:
    for old in image.filled(full_name):
        sent = old.SerializeToString(deterministic=True)
        new = todays_class(full_name).FromString(sent)
        assert as_json(new) == as_json(old)
        assert image.message_class(full_name).FromString(new.SerializeToString()) == old


def test_every_call_of_the_last_landing_exists_with_its_types() -> None:
    for old in image.methods():
        new = descriptor_pool.Default().FindMethodByName(old.full_name)
        assert (new.input_type.full_name, new.output_type.full_name) == (
            old.input_type.full_name,
            old.output_type.full_name,
        )
        assert (new.client_streaming, new.server_streaming) == (
            old.client_streaming,
            old.server_streaming,
        )
