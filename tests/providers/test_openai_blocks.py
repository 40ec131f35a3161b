"""What a vendor wants to get back: kept with its reply, sent with the next request."""

import json
from typing import Any

import pytest
from attrs import evolve

from agentrt.core.chat import ChatRequest, ChatResponse
from agentrt.core.messages import (
    AssistantMessage,
    Blocks,
    Message,
    ToolCall,
    UserMessage,
)
from agentrt.providers.openai_stream import ChatDecoder, decode_reply
from agentrt.providers.openai_wire import Quirks, encode, quirks_of

PLAIN = Quirks(provider="acme", host="acme.example")
ECHOING = evolve(PLAIN, echoes_reasoning=True)
DONE = "[DONE]"


def chunk(delta: Any) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta}]})


def entry(arguments: Any, *, id_: str, name: str, **more: Any) -> dict[str, Any]:
    """An element of `tool_calls`."""
    return {"id": id_, "function": {"name": name, "arguments": arguments}, **more}


def streamed(*data: str, quirks: Quirks = PLAIN) -> ChatResponse:
    decoder = ChatDecoder(quirks, "m1", model="asked")
    for text in data:
        decoder.feed("message", text)
    return decoder.finish()


def whole(message: Any, *, finish: str | None = "stop", **more: Any) -> ChatResponse:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    decoder = ChatDecoder(PLAIN, "m1", model="asked")
    return decode_reply({"choices": [choice], **more}, decoder)


def messages_of(*messages: Message, quirks: Quirks = PLAIN) -> Any:
    return encode(ChatRequest(messages=messages), quirks)["messages"]


def test_details_are_kept_for_their_vendor_joined_by_index() -> None:
    def details(*found: Any) -> str:
        return chunk({"reasoning_details": list(found)})

    response = streamed(
        details({"type": "reasoning.text", "index": 0, "text": "a"}),
        details({"type": "reasoning.text", "index": 0, "text": "b"}),
        details({"type": "reasoning.text", "index": 0, "signature": "s"}),
        details({"type": "reasoning.encrypted", "index": 0, "data": "d"}),
        details({"type": "reasoning.encrypted", "index": 0, "data": "e"}, 7),
        chunk({"tool_calls": [entry("{}", id_="a", name="f")]}),
        DONE,
    )
    assert response.message.reasoning == "ab"
    assert response.message.blocks == Blocks(
        provider="acme",
        format="openai-chat-reasoning",
        data={
            "reasoning_details": [
                {"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"},
                {"type": "reasoning.encrypted", "index": 0, "data": "d"},
                {"type": "reasoning.encrypted", "index": 0, "data": "e"},
            ],
            "host": "acme.example",
            "calls": [{"id": "a", "name": "f"}],
        },
    )


def test_signatures_are_kept_with_their_calls() -> None:
    signed = {**entry("{}", id_="", name="f"), "extra_content": {"google": {"s": "1"}}}
    response = whole({"tool_calls": [signed, entry("{}", id_="", name="g")]})
    assert response.message.blocks == Blocks(
        provider="acme",
        format="openai-chat-reasoning",
        data={
            "host": "acme.example",
            "calls": [
                {"id": "", "name": "f", "extra_content": {"google": {"s": "1"}}},
                {"id": "", "name": "g"},
            ],
        },
    )


def test_reasoning_is_kept_only_for_a_vendor_that_wants_it_back() -> None:
    data = [chunk({"reasoning_content": "Hm"}), chunk({"content": "x"}), DONE]
    kept = streamed(*data, quirks=ECHOING).message.blocks
    assert kept == Blocks(
        provider="acme",
        format="openai-chat-reasoning",
        data={"reasoning_content": "Hm", "host": "acme.example", "calls": []},
    )
    assert streamed(*data).message.blocks is None


def thinking(call_id: str, *, host: str = "api.deepseek.com") -> AssistantMessage:
    data = {
        "reasoning_content": f"thought {call_id}",
        "host": host,
        "calls": [{"id": call_id, "name": "f"}],
    }
    return AssistantMessage(
        id=f"m-{call_id}",
        tool_calls=[ToolCall(id=call_id, name="f")],
        reasoning="shown",
        blocks=Blocks(provider="acme", format="openai-chat-reasoning", data=data),
    )


def test_reasoning_goes_back_within_the_turn_of_tool_calls_only() -> None:
    quirks = quirks_of("https://api.deepseek.com", provider="acme")
    sent = messages_of(
        thinking("old"),
        UserMessage(content="?"),
        thinking("own"),
        thinking("foreign", host="elsewhere.example"),
        evolve(thinking("bare"), blocks=None),
        AssistantMessage(id="m1", content="x", reasoning="shown"),
        quirks=quirks,
    )
    assert [message.get("reasoning_content") for message in sent] == [
        *(None, None, "thought own", "", "shown", None)
    ]


def test_other_vendors_get_no_reasoning_back() -> None:
    assert "reasoning_content" not in messages_of(thinking("c1"))[0]


KEPT = {
    "reasoning_details": [{"text": "a", "signature": "s"}],
    "extra_content": {"google": {"s": "0"}},
    "host": "acme.example",
    "calls": [{"id": "", "name": "f", "extra_content": {"google": {"s": "1"}}}],
}
KEEPING = AssistantMessage(
    id="m1",
    tool_calls=[ToolCall(id="made-up", name="f")],
    blocks=Blocks(provider="acme", format="openai-chat-reasoning", data=KEPT),
)


def test_what_a_vendor_wants_back_it_gets_word_for_word() -> None:
    [sent] = messages_of(KEEPING)
    assert sent["reasoning_details"] == KEPT["reasoning_details"]
    assert sent["extra_content"] == KEPT["extra_content"]
    assert sent["tool_calls"][0]["extra_content"] == {"google": {"s": "1"}}


@pytest.mark.parametrize(
    "stale",
    [
        evolve(KEEPING, blocks=None),
        evolve(KEEPING, tool_calls=[ToolCall(id="c", name="other")]),
        evolve(KEEPING, tool_calls=[*KEEPING.tool_calls] * 2),
        evolve(
            KEEPING,
            blocks=Blocks(provider="b", format="openai-chat-reasoning", data=KEPT),
        ),
        evolve(KEEPING, blocks=Blocks(provider="acme", format="other", data=KEPT)),
        evolve(
            KEEPING,
            blocks=Blocks(provider="acme", format="openai-chat-reasoning", data=[1]),
        ),
        evolve(
            KEEPING,
            blocks=Blocks(
                provider="acme",
                format="openai-chat-reasoning",
                data={**KEPT, "host": "elsewhere.example"},
            ),
        ),
    ],
)
def test_what_is_stale_or_anothers_does_not_go_back(stale: AssistantMessage) -> None:
    [sent] = messages_of(stale)
    assert set(sent) == {"role", "content", "tool_calls"}
    assert all("extra_content" not in call for call in sent["tool_calls"])
