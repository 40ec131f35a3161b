"""The estimate of tokens: high rather than low, and a sum of its parts."""

import json
from collections.abc import Sequence

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.chat import ChatRequest, OutputSchema, ToolSpec
from agentrt.core.messages import (
    AssistantMessage,
    Blocks,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.parts import Content, FilePart, NativePart, TextPart
from agentrt.models.estimate import (
    DOCUMENT_TOKENS,
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    estimate_content,
    estimate_message,
    estimate_messages,
    estimate_request,
    estimate_text,
    estimate_tools,
)
from agentrt.testing.strategies import contents, json_objects, messages, texts

LISTS = st.lists(messages(), max_size=4)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("four", 1),
        ("fives", 2),
        ("天气", 2),
        ("天气 ok", 3),
        ("é", 1),
        ("🌧", 1),
        ("\ud800", 1),
    ],
)
def test_four_ascii_characters_are_a_token_and_so_is_any_other(
    text: str, tokens: int
) -> None:
    assert estimate_text(text) == tokens


@given(texts())
def test_a_text_is_never_less_than_if_it_were_ascii(text: str) -> None:
    assert len(text) / 4 <= estimate_text(text) <= len(text)


@given(texts(), texts())
def test_more_text_is_not_fewer_tokens_and_parts_are_not_fewer_than_the_whole(
    one: str, other: str
) -> None:
    whole = estimate_text(one + other)
    assert max(estimate_text(one), estimate_text(other)) <= whole
    assert whole <= estimate_text(one) + estimate_text(other) <= whole + 1


@given(LISTS, LISTS)
def test_messages_are_the_sum_of_each(
    one: Sequence[Message], other: Sequence[Message]
) -> None:
    together = estimate_messages([*one, *other])
    assert together == estimate_messages(one) + estimate_messages(other)


@given(messages())
def test_a_message_is_at_least_what_it_says_and_its_borders(message: Message) -> None:
    said = estimate_content(message.content) + MESSAGE_TOKENS
    assert estimate_message(message) >= said >= MESSAGE_TOKENS


@given(contents(), texts())
def test_one_more_part_adds_its_own_tokens(content: Content, text: str) -> None:
    parts = (TextPart(text=content),) if isinstance(content, str) else content
    more = estimate_content((*parts, TextPart(text=text)))
    assert more == estimate_content(content) + estimate_text(text)


@pytest.mark.parametrize("size", [4, 40_000])
@pytest.mark.parametrize(
    ("media_type", "tokens"),
    [
        ("image/png", IMAGE_TOKENS),
        ("image/*", IMAGE_TOKENS),
        ("application/pdf", DOCUMENT_TOKENS),
        ("audio/wav", DOCUMENT_TOKENS),
    ],
)
def test_a_file_counts_by_its_kind_and_not_by_its_data(
    media_type: str, tokens: int, size: int
) -> None:
    part = FilePart(media_type=media_type, data="A" * size)
    assert estimate_content((part,)) == tokens


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        ({"type": "text", "text": "four", "cache_control": {"type": "x"}}, 1),
        ({"type": "image_url", "image_url": {"url": "https://x"}}, IMAGE_TOKENS),
        ({"type": "image", "source": {"data": "A" * 40_000}}, IMAGE_TOKENS),
        ({"type": "document", "source": {"data": "A" * 40_000}}, DOCUMENT_TOKENS),
        ({"a": "bc"}, 3),
    ],
)
def test_a_vendors_block_counts_by_its_words_or_its_kind(
    block: dict[str, object], tokens: int
) -> None:
    assert estimate_content((NativePart(block=block),)) == tokens


def test_a_call_is_its_name_and_its_arguments() -> None:
    call = ToolCall(id="1", name="look_up", arguments={"city": "Köln"})
    message = AssistantMessage(id="m", tool_calls=(call,))
    arguments = estimate_text('{"city": "Köln"}')
    assert estimate_message(message) == 4 + 2 + arguments
    broken = evolve(call, arguments={}, invalid_arguments='{"city')
    message = evolve(message, tool_calls=(broken,))
    assert estimate_message(message) == 4 + 2 + 2


def test_what_the_provider_wants_back_counts_in_place_of_the_thinking() -> None:
    message = AssistantMessage(id="m", reasoning="four" * 10)
    assert estimate_message(message) == 4 + 10
    blocks = Blocks(provider="p", format="f", data=["x" * 36])
    assert estimate_message(evolve(message, blocks=blocks)) == 4 + 10


def test_what_is_not_sent_does_not_count() -> None:
    result = ToolMessage(call_id="c", name="add", content="four")
    written = evolve(result, writes={"key": "x" * 1000}, edited_arguments={"a": 1})
    assert estimate_message(written) == estimate_message(result) == 5


@given(LISTS, texts(), st.lists(json_objects(), max_size=3))
def test_a_request_is_the_sum_of_all_that_is_sent(
    asked: Sequence[Message], system: str, schemas: Sequence[dict[str, object]]
) -> None:
    tools = [ToolSpec(name="t", description="d", parameters=each) for each in schemas]
    request = ChatRequest(messages=asked, system=system, tools=tools)
    prompt = estimate_messages([UserMessage(content=system)]) if system else 0
    expected = estimate_messages(asked) + prompt + estimate_tools(tools)
    assert estimate_request(request) == expected


@given(texts(), json_objects())
def test_a_tool_is_at_least_its_schema_and_its_description(
    description: str, parameters: dict[str, object]
) -> None:
    spec = ToolSpec(name="t", description=description, parameters=parameters)
    schema = json.dumps(parameters, ensure_ascii=False)
    assert estimate_tools([spec]) >= len(schema + description) / 4


def test_the_form_of_an_answer_counts() -> None:
    properties = {
        f"p{n}": {"type": "string", "description": "x" * 40} for n in range(50)
    }
    form = OutputSchema(
        name="form", schema={"type": "object", "properties": properties}
    )
    plain = ChatRequest(messages=[UserMessage(content="hi")])
    assert estimate_request(evolve(plain, output_schema=form)) > (
        estimate_request(plain) + 500
    )
