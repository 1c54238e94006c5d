"""Errors travel between the processes as themselves."""

from __future__ import annotations

import pytest

from judge_local import errors
from judge_local.engine import protocol
from judge_local.errors import EngineProtocolError, JudgeLocalError

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, JudgeLocalError)
    and kind is not errors.UnsupportedSchemaError
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_arrives_as_it_was_sent(kind: type[JudgeLocalError]) -> None:
    sent = kind("where", "what is wrong", "What to do.")
    sent.raw = "what the model wrote"
    got = protocol.error_from_json(protocol.error_to_json(sent))

    assert type(got) is kind
    assert str(got) == str(sent)
    assert got.raw == sent.raw


@pytest.mark.parametrize("kind", ["Nothing", "excerpt", "SchemaFault", None])
def test_an_error_of_no_known_kind_is_a_fault_of_the_protocol(kind: str | None) -> None:
    assert type(protocol.error_from_json({"kind": kind, "problem": "p"})) is EngineProtocolError
