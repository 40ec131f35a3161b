"""Requests as bodies of the chat wire, for most vendors and for the special ones."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.chat import ChatRequest, OutputSchema, ToolSpec
from agentrt.core.errors import InvalidRequestError
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.parts import FilePart, NativePart, Part, TextPart
from agentrt.providers.openai_wire import Quirks, body_bytes, encode, quirks_of

PLAIN = Quirks(provider="acme", host="acme.example")
TOOL = ToolSpec(name="f", parameters={"type": "object", "properties": {"x": {}}})
WIRE_TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "properties": {"x": {}}},
    },
}


def messages_of(*messages: Message, quirks: Quirks = PLAIN) -> Any:
    return encode(ChatRequest(messages=messages), quirks)["messages"]


def content_of(*parts: Part) -> Any:
    return messages_of(UserMessage(content=parts))[0]["content"]


def optioned(quirks: Quirks = PLAIN, *, stream: bool = False, **options: Any) -> Any:
    body = encode(ChatRequest(options=options), quirks, stream=stream)
    return {name: body[name] for name in body if name != "messages"}


def test_a_conversation_is_a_list_of_messages_the_system_prompt_first() -> None:
    """B9, B7: neither ids nor what tools wrote are in it."""
    request = ChatRequest(
        system="Be brief.",
        messages=[
            UserMessage(content="Hi"),
            AssistantMessage(
                id="m1",
                content="Well",
                reasoning="Hm",
                tool_calls=[ToolCall(id="c1", name="f", arguments={"x": "ü"})],
            ),
            ToolMessage(call_id="c1", name="f", content="42"),
            SystemMessage(content="Hurry."),
        ],
    )
    assert encode(request, PLAIN)["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "Well",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"x":"\\u00fc"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "system", "content": "Hurry."},
    ]


def test_an_assistant_message_of_calls_alone_has_no_content() -> None:
    message = AssistantMessage(id="m1", tool_calls=[ToolCall(id="c1", name="f")])
    assert messages_of(message)[0]["content"] is None


def test_an_assistant_message_of_nothing_is_left_out() -> None:
    assert messages_of(AssistantMessage(id="m1", reasoning="Hm")) == []


def test_arguments_that_were_no_object_go_back_as_one() -> None:
    call = ToolCall(id="c1", name="", invalid_arguments='{"x": ')
    message = AssistantMessage(id="m1", tool_calls=[call])
    function = messages_of(message)[0]["tool_calls"][0]["function"]
    assert function["name"] == "unnamed"
    assert json.loads(function["arguments"]) == {"invalid_json": '{"x": '}


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            FilePart(media_type="image/png", data="AAAA"),
            {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64,AAAA"},
            },
        ),
        (
            FilePart(media_type="image/*", url="https://x.example/cat"),
            {"type": "image_url", "image_url": {"url": "https://x.example/cat"}},
        ),
        (
            FilePart(media_type="application/pdf", data="AAAA"),
            {
                "type": "file",
                "file": {
                    "filename": "part-2.pdf",
                    "file_data": "data:application/pdf;base64,AAAA",
                },
            },
        ),
        (
            FilePart(media_type="application/pdf", data="AAAA", filename="a.pdf"),
            {
                "type": "file",
                "file": {
                    "filename": "a.pdf",
                    "file_data": "data:application/pdf;base64,AAAA",
                },
            },
        ),
        (
            FilePart(media_type="audio/mpeg", data="AAAA"),
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
        ),
        (
            FilePart(media_type="audio/x-wav", data="AAAA"),
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        ),
        (NativePart(block={"type": "odd", "x": 1}), {"type": "odd", "x": 1}),
    ],
)
def test_a_part_is_a_block_beside_the_text(part: Part, block: Any) -> None:
    found = content_of(TextPart(text="See:"), part, TextPart(text=""))
    assert found == [{"type": "text", "text": "See:"}, block]


def test_parts_of_text_alone_are_one_string() -> None:
    assert content_of(TextPart(text="a"), TextPart(text="b")) == "a b"


@pytest.mark.parametrize(
    "part",
    [
        FilePart(media_type="image/*", data="AAAA"),
        FilePart(media_type="application/pdf", url="https://x.example/a.pdf"),
        FilePart(media_type="audio/mpeg", url="https://x.example/a.mp3"),
        FilePart(media_type="audio/ogg", data="AAAA"),
        FilePart(media_type="text/plain", data="AAAA"),
        FilePart(media_type="video/mp4", data="AAAA"),
    ],
    ids=lambda part: f"{part.media_type} {'inline' if part.data else 'url'}",
)
def test_what_the_wire_cannot_carry_is_refused(part: FilePart) -> None:
    """B8"""
    with pytest.raises(InvalidRequestError, match="acme takes no "):
        content_of(part)


@pytest.mark.parametrize(
    "message",
    [
        SystemMessage(content=[FilePart(media_type="image/png", data="AAAA")]),
        AssistantMessage(
            id="m1", content=[FilePart(media_type="image/png", data="AAAA")]
        ),
        ToolMessage(
            call_id="c1",
            name="f",
            content=[FilePart(media_type="image/png", data="AAAA")],
        ),
    ],
)
def test_a_file_outside_of_a_users_message_is_refused(message: Message) -> None:
    with pytest.raises(InvalidRequestError, match="only stand in a user's message"):
        messages_of(message)


def test_options_go_to_the_vendor_and_none_does_not() -> None:
    found = optioned(model="m", temperature=0, top_p=None, odd={"deep": [1]})
    assert found == {"model": "m", "temperature": 0, "odd": {"deep": [1]}}


def test_an_extra_body_is_merged_last_and_wins() -> None:
    found = optioned(temperature=0, extra_body={"temperature": 1, "route": "x"})
    assert found == {"temperature": 1, "route": "x"}


def test_options_with_a_meaning_here_stay_here() -> None:
    options = {"tools": [object()], "messages": [1], "stream": True, "extra_query": {}}
    assert encode(ChatRequest(options=options), PLAIN) == {"messages": []}


def test_an_extra_body_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="'extra_body' is a list"):
        optioned(extra_body=[1])


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://api.mistral.ai/v1", "max_tokens"),
        ("http://localhost:8080/v1", "max_tokens"),
    ],
)
def test_the_limit_of_tokens_has_the_name_that_the_host_knows(
    url: str, name: str
) -> None:
    assert optioned(quirks_of(url, provider="acme"), max_tokens=9) == {name: 9}


def test_a_stream_asks_for_usage() -> None:
    expected = {"stream": True, "stream_options": {"include_usage": True}}
    assert optioned(stream=True) == expected


@pytest.mark.parametrize(
    "found",
    [
        optioned(evolve(PLAIN, usage_in_stream=False), stream=True),
        optioned(stream=True, stream_options={}),
    ],
)
def test_a_stream_need_not_ask_for_usage(found: Any) -> None:
    assert found == {"stream": True}


def test_a_tool_is_its_name_its_description_and_its_schema() -> None:
    spec = ToolSpec(name="f", description="Does f.", parameters={"required": ["x"]})
    body = encode(ChatRequest(tools=[TOOL, spec]), PLAIN)
    assert body["tools"] == [
        WIRE_TOOL,
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "Does f.",
                "parameters": {
                    "type": "object",
                    "properties": {},
                    "required": ["x"],
                },
            },
        },
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, {"tools": [WIRE_TOOL]}),
        ("auto", {"tools": [WIRE_TOOL]}),
        ("required", {"tools": [WIRE_TOOL], "tool_choice": "required"}),
        (
            "f",
            {
                "tools": [WIRE_TOOL],
                "tool_choice": {"type": "function", "function": {"name": "f"}},
            },
        ),
        ("none", {}),
    ],
)
def test_a_tool_choice_goes_along_with_the_tools(
    choice: str | None, expected: Mapping[str, Any]
) -> None:
    request = ChatRequest(tools=[TOOL], tool_choice=choice)
    assert encode(request, PLAIN) == {"messages": [], **expected}


def test_a_tool_choice_without_tools_is_not_sent() -> None:
    """B35"""
    options = {"parallel_tool_calls": False}
    request = ChatRequest(tool_choice="required", options=options)
    assert encode(request, PLAIN) == {"messages": []}


def test_a_tool_choice_that_is_no_tool_is_refused() -> None:
    request = ChatRequest(tools=[TOOL], tool_choice="g")
    with pytest.raises(InvalidRequestError, match=r"tool_choice is 'g', .* tools: f$"):
        encode(request, PLAIN)


def test_a_tool_choice_in_the_vendors_form_goes_along_as_it_is() -> None:
    choice = {"type": "allowed_tools", "mode": "auto"}
    request = ChatRequest(tools=[TOOL], options={"tool_choice": choice})
    assert encode(request, PLAIN)["tool_choice"] == choice


def test_a_native_block_may_stand_in_a_tools_result() -> None:
    parts = (TextPart(text="a"), NativePart(block={"type": "odd"}))
    [sent] = messages_of(ToolMessage(call_id="c1", name="f", content=parts))
    assert sent["content"] == [{"type": "text", "text": "a"}, {"type": "odd"}]


def test_mistral_gets_its_own_word_and_ids_of_nine_characters() -> None:
    quirks = quirks_of("https://api.mistral.ai/v1", provider="acme")
    call, own = ToolCall(id="call_1", name="f"), ToolCall(id="abcdefgh1", name="f")
    request = ChatRequest(
        messages=[
            AssistantMessage(id="m1", tool_calls=[call, own]),
            ToolMessage(call_id="call_1", name="f", content="x"),
        ],
        tools=[TOOL],
        tool_choice="required",
    )
    body = encode(request, quirks)
    ids = [call["id"] for call in body["messages"][0]["tool_calls"]]
    assert body["tool_choice"] == "any"
    assert ids[1] == "abcdefgh1"
    assert len(ids[0]) == 9
    assert ids[0].isalnum()
    assert body["messages"][1]["tool_call_id"] == ids[0]


@pytest.mark.parametrize(
    "url", ["", "api.openai.com/v1", "ftp://x.example", "http://["]
)
def test_a_base_url_without_scheme_or_host_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="base URL of acme"):
        quirks_of(url, provider="acme")


def test_half_a_surrogate_pair_goes_through() -> None:
    body = encode(ChatRequest(messages=[UserMessage(content="\ud800")]), PLAIN)
    assert body_bytes(body) == rb'{"messages":[{"role":"user","content":"\ud800"}]}'


def test_mappings_and_sequences_of_any_kind_are_json_too() -> None:
    found = body_bytes({"x": MappingProxyType({"y": (1, 2), "z": range(2)})})
    assert found == b'{"x":{"y":[1,2],"z":[0,1]}}'


@pytest.mark.parametrize("value", [object(), float("nan"), b"x", {1, 2}])
def test_an_option_that_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="the request is no JSON"):
        body_bytes({"x": value})


TEXTS = st.text(st.characters(exclude_categories=[]), max_size=5)
ARGUMENTS = st.dictionaries(TEXTS, TEXTS | st.integers(), max_size=2)
CALLS = st.lists(st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=ARGUMENTS))
HISTORY = st.lists(
    st.builds(UserMessage, content=TEXTS)
    | st.builds(AssistantMessage, id=TEXTS, content=TEXTS, tool_calls=CALLS)
    | st.builds(ToolMessage, call_id=TEXTS, name=TEXTS, content=TEXTS),
    max_size=5,
)


@given(HISTORY, st.sampled_from(["api.mistral.ai", "api.deepseek.com", "x.example"]))
def test_any_history_becomes_a_body_with_arguments_that_are_json(
    messages: list[Message], host: str
) -> None:
    quirks = quirks_of(f"https://{host}", provider="acme")
    body = json.loads(body_bytes(encode(ChatRequest(messages=messages), quirks)))
    sent = [
        call for message in body["messages"] for call in message.get("tool_calls", [])
    ]
    given_ = [
        call.arguments
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    ]
    assert [json.loads(call["function"]["arguments"]) for call in sent] == given_


FORM = OutputSchema(name="film", schema={"type": "object"}, strict=True)


def form_of(quirks: Quirks = PLAIN, **options: Any) -> Any:
    request = ChatRequest(output_schema=FORM, options=options)
    return encode(request, quirks)["response_format"]


def test_the_form_of_an_answer_is_told_as_a_schema() -> None:
    assert form_of() == {
        "type": "json_schema",
        "json_schema": {"name": "film", "schema": {"type": "object"}, "strict": True},
    }


@pytest.mark.parametrize("host", ["api.deepseek.com", "open.bigmodel.cn", "api.z.ai"])
def test_a_vendor_that_takes_no_schema_is_told_json(host: str) -> None:
    quirks = quirks_of(f"https://{host}/v1", provider="acme")
    assert form_of(quirks) == {"type": "json_object"}


def test_an_option_wins_over_the_form() -> None:
    assert form_of(response_format={"type": "text"}) == {"type": "text"}


def test_without_a_form_there_is_none() -> None:
    assert "response_format" not in optioned()
