"""Events as AG-UI: complete, without nulls, as the protocol's own models have it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentrt import Agent, open_runtime, tool
from agentrt.agent.pause import check_answers
from agentrt.agui import encode, encode_messages, encode_resync
from agentrt.agui.codec import Dialect, encode_interrupt
from agentrt.agui.intake import read_decision
from agentrt.core.chat import Usage
from agentrt.core.messages import (
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.outcomes import Interrupt
from agentrt.core.parts import FilePart, NativePart, TextPart
from agentrt.events import types as e
from agentrt.testing import (
    Say,
    ScriptedModel,
    contents,
    messages,
    read_stream,
    scripts,
    trio_property,
)
from agentrt.tools.arguments import SchemaChecker

core = pytest.importorskip("ag_ui.core")
pydantic = pytest.importorskip("pydantic")

EVENTS: Final[Any] = pydantic.TypeAdapter(core.Event)
MESSAGES: Final[Any] = pydantic.TypeAdapter(list[core.Message])  # type: ignore[name-defined]
DIALECTS: Final[Sequence[Dialect]] = ("1.0", "0.0")
both = pytest.mark.parametrize("dialect", DIALECTS)

IMAGE = FilePart(media_type="image/png", data="aGk=", filename="a.png")
ASK = Interrupt(
    id="c1",
    reason="It deletes a file",
    call=ToolCall(id="c1", name="delete_file", arguments={"path": "a"}),
)
USAGE = Usage(provider="p", model="m", input_tokens=3, output_tokens=2, total_tokens=5)

ONE_OF_EACH: Final[Sequence[e.Event]] = [
    e.RunStarted(label="r", agent="a", input=[UserMessage(id="u1", content="hi")]),
    e.IterationStarted(index=0),
    e.ModelStarted(message_id="m1"),
    e.ReasoningStarted(message_id="m1-reasoning-1", parent_id="m1"),
    e.MessageThinking(message_id="m1-reasoning-1", text="hm"),
    e.ReasoningEnded(message_id="m1-reasoning-1"),
    e.MessageStarted(message_id="m1"),
    e.MessageDelta(message_id="m1", text="I add."),
    e.MessageEnded(message_id="m1"),
    e.ToolStarted(call_id="c1", name="add", message_id="m1"),
    e.ToolArgsDelta(call_id="c1", text='{"a": 1}'),
    e.ToolEnded(call_id="c1", arguments={"a": 1}),
    e.ModelFinished(message_id="m1", elapsed=1.0),
    e.ModelRetried(
        message_id="m1",
        ref="a/b",
        attempt=1,
        wait_seconds=0.5,
        error="no",
        error_code="timeout",
    ),
    e.ModelSwitched(
        message_id="m1", from_ref="a/b", to_ref="c/d", error="no", error_code="timeout"
    ),
    e.RunUsage(usage=[USAGE]),
    e.ToolReturned(call_id="c1", name="add", content="1"),
    e.RunFinished(label="r", text="done", usage=[USAGE]),
    e.RunFailed(label="r", message="no", error_code="internal", usage=[USAGE]),
    e.RunCancelled(label="r", reason="asked", usage=[USAGE]),
    e.RunPaused(label="r", interrupts=[ASK], usage=[USAGE]),
]


def envelope(event: e.Event) -> e.Envelope:
    return e.Envelope(seq=1, conversation_id="t", run_id="run-1", at=1.75, event=event)


def encoded(event: e.Event, dialect: Dialect = "1.0") -> Sequence[Mapping[str, Any]]:
    """What goes out for it, after JSON, as the protocol's models accept it."""
    out: list[Mapping[str, Any]] = json.loads(
        json.dumps(list(encode(envelope(event), dialect)))
    )
    for each in out:
        check(EVENTS, each)
        assert None not in each.values()
    return out


def check(adapter: Any, value: Any) -> None:
    """The models take it, and lose nothing of it."""
    model = adapter.validate_python(value)
    again = adapter.dump_python(model, by_alias=True, exclude_unset=True, mode="json")
    assert again == value


def test_there_is_one_of_each() -> None:
    unions = [get_args(member) or (member,) for member in get_args(e.Event)]
    known = {kind for members in unions for kind in members}
    assert {type(event) for event in ONE_OF_EACH} == known


@both
@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: event.tag)
def test_every_event_is_what_the_protocol_knows(
    event: e.Event, dialect: Dialect
) -> None:
    encoded(event, dialect)


@both
def test_a_whole_turn_in_the_protocols_order(dialect: Dialect) -> None:
    turn = ONE_OF_EACH[: ONE_OF_EACH.index(ONE_OF_EACH[-4]) + 1]
    types = [each["type"] for event in turn for each in encoded(event, dialect)]
    assert types == [
        "RUN_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "RUN_FINISHED",
    ]


@both
def test_a_run_has_the_id_that_its_client_gave_it(dialect: Dialect) -> None:
    ends = e.RunStarted(label="mine"), e.RunFinished(label="mine")
    for event in ends:
        (out,) = encoded(event, dialect)
        assert (out["threadId"], out["runId"]) == ("t", "mine")
    (out,) = encoded(e.RunStarted(), dialect)
    assert out["runId"] == "run-1"


def test_the_version_is_told_only_to_whoever_knows_versions() -> None:
    (new,), (old,) = encoded(e.RunStarted()), encoded(e.RunStarted(), "0.0")
    assert new["protocolVersion"] == "1.0"
    assert "protocolVersion" not in old


def test_an_older_client_is_told_a_cancellation_as_a_plain_end() -> None:
    cancelled = e.RunCancelled(reason="asked")
    (new,), (old,) = encoded(cancelled), encoded(cancelled, "0.0")
    assert new["outcome"] == {"type": "cancelled"}
    assert "outcome" not in old  # it would refuse one that it does not know
    assert old["metadata"] == {"agentrt": {"cancelled": True}}


def test_an_older_client_gets_results_as_text() -> None:
    event = e.ToolReturned(
        call_id="c", name="draw", content=[TextPart(text="here"), IMAGE]
    )
    (new,), (old,) = encoded(event), encoded(event, "0.0")
    assert [part["type"] for part in new["content"]] == ["text", "image"]
    assert old["content"] == "here [a.png: image/png]"


def test_a_result_that_is_an_error_says_so_and_whose_word_it_is() -> None:
    event = e.ToolReturned(
        call_id="c",
        name="delete_file",
        content="no",
        is_error=True,
        status="denied",
        synthetic=True,
    )
    (out,) = encoded(event)
    assert out["metadata"] == {"agentrt": {"isError": True, "status": "denied"}}


def test_a_result_says_what_a_person_put_into_the_call() -> None:
    event = e.ToolReturned(
        call_id="c", name="add", content="2", edited_arguments={"n": 2}
    )
    (out,) = encoded(event)
    assert out["metadata"] == {"agentrt": {"editedArguments": {"n": 2}}}


def test_a_failure_carries_message_and_code() -> None:
    event = e.RunFailed(message="The model is away.", error_code="model_unavailable")
    (out,) = encoded(event)
    assert out == {
        "type": "RUN_ERROR",
        "message": "The model is away.",
        "code": "model_unavailable",
    }


def test_usage_leaves_out_what_is_not_known() -> None:
    (out,) = encoded(e.RunFinished(usage=[USAGE, Usage(input_tokens=0)]))
    assert out["usage"][0] == {
        "provider": "p",
        "model": "m",
        "inputTokens": 3,
        "outputTokens": 2,
        "totalTokens": 5,
    }
    assert out["usage"][1]["inputTokens"] == 0  # a zero is known


def test_an_interrupt_says_how_to_answer_it() -> None:
    out = encode_interrupt(ASK)
    assert out["id"] == out["toolCallId"] == "c1"
    assert out["reason"] == "tool_call"
    assert out["message"] == "It deletes a file"
    assert out["metadata"]["arguments"] == {"path": "a"}
    assert out["responseSchema"]["required"] == ["approved"]


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("approval", {"approved": True}),
        ("external", {"decision": "reply", "message": "blue"}),
        ("external", {"decision": "deny"}),
        ("environment", {"decision": "retry"}),
        ("environment", {"decision": "deny"}),
    ],
)
def test_what_an_interrupt_says_can_answer_it_does(
    kind: Any, answer: dict[str, Any]
) -> None:
    """B62: each kind has a schema of its own, and what fits it is taken."""
    interrupt = evolve(ASK, kind=kind)
    schema = encode_interrupt(interrupt)["responseSchema"]
    assert SchemaChecker(schema).faults(answer) == ()
    decision = read_decision("resolved", answer)
    check_answers([interrupt], {interrupt.id: decision}, lambda *_: None)


@both
@given(history=st.lists(messages(), max_size=4))
def test_any_history_is_messages_of_the_protocol(
    history: list[Any], dialect: Dialect
) -> None:
    out = json.loads(json.dumps(list(encode_messages(history, dialect))))
    check(MESSAGES, out)
    assert [each["id"] for each in out] == [each.id for each in history]
    if dialect == "0.0":
        results = [each["content"] for each in out if each["role"] == "tool"]
        assert all(isinstance(result, str) for result in results)


@both
@given(content=contents())
def test_any_result_is_a_result_of_the_protocol(content: Any, dialect: Dialect) -> None:
    encoded(e.ToolReturned(call_id="c", name="t", content=content), dialect)


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [
        ("image/*", "image"),
        ("audio/wav", "audio"),
        ("video/mp4", "video"),
        ("application/pdf", "document"),
        ("text/csv", "document"),
    ],
)
def test_a_file_is_of_the_kind_that_its_media_type_says(
    media_type: str, kind: str
) -> None:
    at = "https://files.example/f"
    message = UserMessage(id="u", content=[FilePart(media_type=media_type, url=at)])
    (out,) = encode_messages([message], "1.0")
    source = {"type": "url", "value": at, "mimeType": media_type}
    assert out["content"] == [{"type": kind, "source": source}]


def test_a_vendors_own_block_is_its_text() -> None:
    block = NativePart(block={"type": "search_result", "text": "found"})
    (out,) = encode_messages([UserMessage(id="u", content=[block])], "1.0")
    assert out["content"] == [{"type": "text", "text": "found"}]


@both
def test_each_kind_of_message(dialect: Dialect) -> None:
    out = encode_messages(
        [
            SystemMessage(id="s", content="be kind"),
            UserMessage(id="u", content="hi"),
            AssistantMessage(
                id="m",
                content="",
                tool_calls=[
                    ToolCall(id="c1", name="add", arguments={"a": 1}),
                    ToolCall(id="c2", name="add", invalid_arguments="{oops"),
                ],
            ),
            ToolMessage(call_id="c1", name="add", content="no", is_error=True),
        ],
        dialect,
    )
    check(MESSAGES, list(out))
    system, user, assistant, result = out
    assert (system["content"], user["content"]) == ("be kind", "hi")
    assert "content" not in assistant
    functions = [each["function"] for each in assistant["toolCalls"]]
    assert json.loads(functions[0]["arguments"]) == {"a": 1}
    assert functions[1]["arguments"] == "{oops"
    assert result["toolCallId"] == "c1"
    assert result["metadata"] == {"agentrt": {"isError": True}}


def resync(**given: Any) -> e.Resync:
    return e.Resync(conversation_id="t", seq=9, **given)


def test_a_resync_has_arguments_as_far_as_they_came() -> None:
    asking = AssistantMessage(id="m", tool_calls=[ToolCall(id="c", name="add")])
    (out,) = encode_resync(
        resync(messages=[asking], partial_arguments={"c": '{"a": 1'}), "1.0"
    )
    assert out["toolCalls"][0]["function"]["arguments"] == '{"a": 1'


@both
def test_a_resync_has_the_thinking_before_what_came_of_it(dialect: Dialect) -> None:
    streamed = AssistantMessage(id="m1", content="2", reasoning="one, two")
    stored = AssistantMessage(id="m2", content="3", reasoning="and one")
    blocks = [
        e.ReasoningBlock(id="m1-reasoning-1", parent_id="m1", text="one, "),
        e.ReasoningBlock(id="m1-reasoning-2", parent_id="m1", text="two"),
    ]
    out = list(
        encode_resync(resync(messages=[streamed, stored], reasoning=blocks), dialect)
    )
    check(MESSAGES, out)
    assert [(each["id"], each["content"]) for each in out] == [
        ("m1-reasoning-1", "one, "),
        ("m1-reasoning-2", "two"),
        ("m1", "2"),
        ("m2-reasoning-1", "and one"),
        ("m2", "3"),
    ]


@given(script=scripts(["add"]))
@trio_property
async def test_whatever_a_run_tells_is_the_protocols(script: Sequence[Say]) -> None:
    @tool
    async def add(a: int = 0, b: int = 0) -> int:
        """Add."""
        return a + b

    async with open_runtime(Agent(model=ScriptedModel(script), tools=[add])) as runtime:
        run = await runtime.start_run("t", "go")
        reader = runtime.subscribe("t", since=run.since)
        await run.wait()
        await runtime.close()
        told = await read_stream(reader)
    assert told
    for each in told:
        assert isinstance(each, e.Envelope)
        for dialect in DIALECTS:
            encoded(each.event, dialect)


@both
def test_what_filters_keep_for_themselves_goes_to_no_frontend(dialect: Dialect) -> None:
    """B63: neither their state nor that of tools is part of a result."""
    writes = {"agentrt/secret": "mine", "live": "yours"}
    told = encoded(
        e.ToolReturned(call_id="c1", name="add", content="1", writes=writes), dialect
    )
    assert "mine" not in json.dumps(told)
    assert "yours" not in json.dumps(told)
