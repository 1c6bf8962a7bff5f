"""Suite resource-slot: amounts and vectors, parsed, completed, compared and printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from tests.conformance.backendai_case import Json, Operation, known

from tenure_core.admission.quantities import format_bytes, parse_bytes, plain, short_bytes
from tenure_core.admission.slots import (
    SlotError,
    SlotFault,
    SlotType,
    Unnamed,
    added,
    compared,
    completed,
    from_policy,
    from_request,
    humanized,
    printed,
    subtracted,
)

_FAULTS: Final = {
    SlotFault.INVALID: "invalid",
    SlotFault.UNKNOWN: "unknown-slot",
    SlotFault.NEGATIVE: "negative",
    SlotFault.UNDEFINED: "undefined",
}


def _bytes_parse(case: Json) -> Json:
    known(case, {"expr"})
    try:
        return {"bytes": plain(parse_bytes(case["expr"]))}
    except ValueError:
        return {"error": "invalid"}


def _bytes_format(case: Json) -> Json:
    known(case, {"value"})
    return {"text": format_bytes(Decimal(case["value"]))}


def _bytes_short(case: Json) -> Json:
    known(case, {"value"})
    return {"text": short_bytes(Decimal(case["value"]))}


def _types(types: Mapping[str, str]) -> dict[str, SlotType]:
    return {kind: SlotType(name) for kind, name in types.items()}


def _vector(slots: Mapping[str, str]) -> dict[str, Decimal]:
    return {kind: Decimal(number) for kind, number in slots.items()}


def _slots(vector: Callable[[], Mapping[str, Decimal]]) -> Json:
    try:
        return {"slots": {kind: plain(amount) for kind, amount in vector().items()}}
    except SlotError as error:
        return {"error": _FAULTS[error.fault]}


def _from_user_input(case: Json) -> Json:
    known(case, {"values", "types"})
    types = None if case["types"] is None else _types(case["types"])
    return _slots(lambda: from_request(case["values"], types))


def _from_policy(case: Json) -> Json:
    known(case, {"total", "default_for_unspecified", "types"})
    unnamed = Unnamed(case["default_for_unspecified"])
    return _slots(lambda: from_policy(case["total"], unnamed, _types(case["types"])))


def _normalize(case: Json) -> Json:
    known(case, {"slots", "known", "ignore_unknown"})
    return _slots(
        lambda: completed(
            _vector(case["slots"]), _types(case["known"]), drop=case["ignore_unknown"]
        )
    )


def _add(case: Json) -> Json:
    known(case, {"a", "b"})
    return _slots(lambda: added(_vector(case["a"]), _vector(case["b"])))


def _sub(case: Json) -> Json:
    known(case, {"a", "b"})
    return _slots(lambda: subtracted(_vector(case["a"]), _vector(case["b"])))


def _compare(case: Json) -> Json:
    known(case, {"a", "b"})
    found = compared(_vector(case["a"]), _vector(case["b"]))
    return {
        "eq": found.equal,
        "lt": found.less,
        "le": found.at_most,
        "gt": found.greater,
        "ge": found.at_least,
        "eq_contains": found.covers,
        "eq_contained": found.covered,
    }


def _to_json(case: Json) -> Json:
    known(case, {"slots"})
    return {"json": printed(_vector(case["slots"]))}


def _to_humanized(case: Json) -> Json:
    known(case, {"slots", "types"})
    return {"text": humanized(_vector(case["slots"]), _types(case["types"]))}


OPERATIONS: Final = {
    "bytes_parse": Operation(_bytes_parse),
    "bytes_format": Operation(_bytes_format),
    "bytes_short": Operation(_bytes_short),
    "from_user_input": Operation(_from_user_input),
    "from_policy": Operation(_from_policy),
    "normalize": Operation(_normalize),
    "add": Operation(_add),
    "sub": Operation(_sub),
    "compare": Operation(_compare),
    "to_json": Operation(_to_json),
    "to_humanized": Operation(_to_humanized),
}
