"""The contracts as they last landed: classes made from their image alone, as old clients have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

IMAGE = Path(__file__).with_name("contracts.binpb")
DEPTH = 3
"""How many messages inside each other are filled; some contain themselves."""


@cache
def pool() -> descriptor_pool.DescriptorPool:
    """Return the descriptors of the image, apart from those of today."""
    files = descriptor_pb2.FileDescriptorSet.FromString(IMAGE.read_bytes())
    made = descriptor_pool.DescriptorPool()
    for file in files.file:
        made.Add(file)  # an image has each file after those that it imports
    return made


@cache
def file_names() -> tuple[str, ...]:
    """Return the files of the image that are ours."""
    files = descriptor_pb2.FileDescriptorSet.FromString(IMAGE.read_bytes())
    return tuple(file.name for file in files.file if file.name.startswith("tenure/"))


def messages() -> list[str]:
    """Return the full name of every message, also of those inside others; map entries apart."""
    found: list[str] = []
    todo = [kind for name in file_names() for kind in _top(name)]
    while todo:
        kind = todo.pop()
        if not kind.GetOptions().map_entry:
            found.append(kind.full_name)
            todo += kind.nested_types
    return sorted(found)


def methods() -> list[MethodDescriptor]:
    """Return every call of every service."""
    return [
        method
        for name in file_names()
        for service in pool().FindFileByName(name).services_by_name.values()
        for method in service.methods
    ]


def message_class(full_name: str) -> type[Message]:
    """Return the class that an old client has for a message."""
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(full_name))


def filled(full_name: str) -> Iterator[Message]:
    """Yield messages in which each field is set in at least one, and each choice of a oneof."""
    descriptor = pool().FindMessageTypeByName(full_name)
    rounds = max([1, *(len(oneof.fields) for oneof in descriptor.oneofs)])
    for choice in range(rounds):
        message = message_class(full_name)()
        _fill(message, choice, DEPTH)
        yield message


def _top(name: str) -> list[Any]:
    return list(pool().FindFileByName(name).message_types_by_name.values())


def _fill(message: Message, choice: int, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        siblings = field.containing_oneof.fields if field.containing_oneof else [field]
        if siblings[choice % len(siblings)] is not field:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(getattr(message, field.name), field.message_type, depth)
        elif field.message_type is not None:
            _fill_messages(message, field, choice, depth)
        elif field.is_repeated:
            getattr(message, field.name).extend([_scalar(field, 1), _scalar(field, 2)])
        else:
            setattr(message, field.name, _scalar(field, 1))


def _fill_messages(message: Message, field: Any, choice: int, depth: int) -> None:
    if not depth:
        return
    inner = getattr(message, field.name)
    for one in [inner.add(), inner.add()] if field.is_repeated else [inner]:
        one.SetInParent()
        _fill(one, choice, depth - 1)


def _fill_map(entries: Any, entry: Any, depth: int) -> None:
    key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for number in (1, 2):
        if value.message_type is None:
            entries[_scalar(key, number)] = _scalar(value, number)
        elif depth:
            _fill(entries[_scalar(key, number)], 0, depth - 1)


def _scalar(field: Any, number: int) -> object:
    """Return a value that is not the default, another one for each number."""
    if field.enum_type is not None:
        values = [value.number for value in field.enum_type.values if value.number]
        return values[(field.number + number) % len(values)]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"%d" % number
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return f"{field.name}-{number}"
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return True
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return field.number + number / 4
    return 100 * field.number + number
