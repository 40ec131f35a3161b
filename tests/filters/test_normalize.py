"""Normalize: every provider takes the request, and the same gives the same bytes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve
from hypothesis import assume, given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.converter import message_to_json
from agentrt.core.history import find_history_faults
from agentrt.core.messages import (
    AssistantMessage,
    Blocks,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    role_of,
)
from agentrt.core.parts import FilePart, NativePart, TextPart
from agentrt.filters.normalize import Normalizer, normalize_filter
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import ScriptedModel
from agentrt.testing.strategies import histories, messages

NORMALIZERS = st.builds(
    Normalizer,
    images=st.booleans(),
    audio=st.booleans(),
    files=st.booleans(),
    thinking=st.sampled_from(["keep", "before_current_turn"]),
    merge=st.booleans(),
)
ANYTHING = st.lists(messages(), max_size=6) | histories(valid=False)

PLAIN = Normalizer()
PICTURE = FilePart(media_type="image/png", data="AAAA", filename="cat.png")
SOUND = FilePart(media_type="audio/wav", data="AAAA")
PAPER = FilePart(media_type="application/pdf", data="AAAA", filename="a.pdf")
BLOCKS = Blocks(provider="p", format="f", data=["thought"])


def user(content: Any, name: str = "u") -> UserMessage:
    return UserMessage(id=name, content=content)


def says(content: Any = "", *calls: str, name: str = "m", **more: Any) -> Message:
    made = tuple(ToolCall(id=each, name="add") for each in calls)
    return AssistantMessage(id=name, content=content, tool_calls=made, **more)


def result(call_id: str, content: Any = "3") -> ToolMessage:
    return ToolMessage(call_id=call_id, name="add", content=content)


def as_bytes(some: Sequence[Message]) -> Sequence[str]:
    return [message_to_json(message) for message in some]


@given(NORMALIZERS, ANYTHING)
def test_doing_it_twice_changes_nothing_more(
    normalizer: Normalizer, some: Sequence[Message]
) -> None:
    once = normalizer.apply(some)
    assert list(normalizer.apply(once)) == list(once)


@given(NORMALIZERS, ANYTHING)
def test_whatever_comes_in_each_call_has_its_result(
    normalizer: Normalizer, some: Sequence[Message]
) -> None:
    faults = find_history_faults(normalizer.apply(some))
    assert [fault for fault in faults if "twice" not in fault] == []


@given(NORMALIZERS, ANYTHING)
def test_the_same_history_gives_the_same_bytes(
    normalizer: Normalizer, some: Sequence[Message]
) -> None:
    """B70"""
    again = [evolve(message) for message in some]
    assert as_bytes(normalizer.apply(some)) == as_bytes(normalizer.apply(again))


@given(histories())
def test_a_valid_history_is_given_back_as_it_is(some: Sequence[Message]) -> None:
    assume(all(m.content.strip() or getattr(m, "tool_calls", ()) for m in some))  # type: ignore[union-attr]
    assume(all(not m.content or m.content.strip() for m in some))  # type: ignore[union-attr]
    assert PLAIN.apply(some) is some


@given(histories(), st.booleans())
def test_what_was_sent_stays_as_it_was_when_the_history_grows(
    some: Sequence[Message], images: bool
) -> None:
    """B70: so that a provider's cache of the beginning holds."""
    normalizer = Normalizer(images=images)
    borders = [n for n, m in enumerate(some) if not isinstance(m, ToolMessage)]
    assume(all(m.content.strip() for m in some if isinstance(m, UserMessage)))  # type: ignore[union-attr]
    whole = list(normalizer.apply(some))
    for border in borders:
        before = list(normalizer.apply(some[:border]))
        assert whole[: len(before)] == before


def test_results_without_a_call_go_and_missing_ones_are_put_in() -> None:
    asked: list[Message] = [
        user("go"),
        result("lost"),
        says("", "c1", "c2"),
        result("c2"),
        user("?"),
    ]
    shown = PLAIN.apply(asked)
    assert [message.id for message in shown] == [
        "u",
        "m",
        "c1-result",
        "c2-result",
        "u",
    ]
    missing = shown[2]
    assert isinstance(missing, ToolMessage)
    assert (missing.synthetic, missing.is_error) == (True, True)
    assert "its result was never recorded" in missing.text


@pytest.mark.parametrize(
    ("switch", "part", "text"),
    [
        ("images", PICTURE, "[image 'cat.png' is left out: this model cannot read it]"),
        ("audio", SOUND, "[audio is left out: this model cannot read it]"),
        ("files", PAPER, "[file 'a.pdf' is left out: this model cannot read it]"),
    ],
)
def test_what_the_model_cannot_take_becomes_a_line_of_text(
    switch: str, part: FilePart, text: str
) -> None:
    asked = [
        user((TextPart(text="see"), part)),
        says("", "c1"),
        result("c1", (part,)),
    ]
    options: dict[str, Any] = {switch: False}
    seen, _, told = Normalizer(**options).apply(asked)
    assert seen.content == (TextPart(text="see"), TextPart(text=text))
    assert told.content == (TextPart(text=text),)
    assert PLAIN.apply(asked) is asked
    others: dict[str, Any] = {
        name: name == switch for name in ("images", "audio", "files")
    }
    assert Normalizer(**others).apply(asked) is asked


def test_a_vendors_own_block_is_its_vendors_business() -> None:
    asked = [user((NativePart(block={"type": "image"}),))]
    assert Normalizer(images=False, files=False).apply(asked) is asked


def test_messages_that_say_nothing_go() -> None:
    asked: list[Message] = [
        SystemMessage(id="s", content=" "),
        user("go"),
        says("\n", reasoning="hm"),
        user((TextPart(text=" "),), "u2"),
        says("  ", "c1", name="m2"),
        result("c1", " "),
        user((TextPart(text="\t"), PICTURE), "u3"),
    ]
    shown = PLAIN.apply(asked)
    assert [message.id for message in shown] == ["u", "m2", "c1-result", "u3"]
    assert [message.content for message in shown] == ["go", "", " ", (PICTURE,)]


def test_a_request_of_nothing_else_is_left_to_its_vendor() -> None:
    asked = [user(" ")]
    assert PLAIN.apply(asked) is asked


def test_blocks_of_earlier_turns_go_and_those_of_this_turn_stay() -> None:
    asked = [
        user("one"),
        says("a", "c1", blocks=BLOCKS),
        result("c1"),
        says("b", name="m2", blocks=BLOCKS),
        user("two", "u2"),
        says("c", "c2", name="m3", blocks=BLOCKS),
        result("c2"),
    ]
    stripping = Normalizer(thinking="before_current_turn")
    shown = stripping.apply(asked)
    kept = [m.blocks for m in shown if isinstance(m, AssistantMessage)]
    assert kept == [None, None, BLOCKS]
    assert PLAIN.apply(asked) is asked
    assert stripping.apply(asked[4:]) == asked[4:]
    assert stripping.apply([says("x", blocks=BLOCKS)]) == [says("x", blocks=BLOCKS)]


def test_neighbors_with_the_same_role_become_one_if_asked_to() -> None:
    asked = [
        user("one"),
        user((PICTURE,), "u2"),
        says("a", reasoning="hm"),
        says("b", "c1", name="m2", reasoning="so"),
        result("c1"),
        user("two", "u3"),
        user("three", "u4"),
    ]
    merging = Normalizer(merge=True)
    assert merging.apply(asked) == [
        user((TextPart(text="one"), PICTURE)),
        says("a\n\nb", "c1", reasoning="hm\n\nso"),
        result("c1"),
        user("two\n\nthree", "u3"),
    ]
    assert PLAIN.apply(asked) is asked


@given(ANYTHING)
def test_after_merging_no_user_message_follows_another(some: Sequence[Message]) -> None:
    shown = Normalizer(merge=True).apply(some)
    roles = [role_of(message) for message in shown]
    assert ("user", "user") not in set(pairwise(roles))


@pytest.mark.parametrize(
    "second", [says("b", name="m2", blocks=BLOCKS), says("b", "c1", name="m2")]
)
def test_what_a_provider_wants_back_word_for_word_is_not_merged(
    second: AssistantMessage,
) -> None:
    first = says("a", "c0") if second.blocks is None else says("a")
    shown = Normalizer(merge=True).apply([user("go"), first, second])
    assert second in shown


async def test_the_filter_changes_the_request_and_not_the_store() -> None:
    memory = InMemoryChatMemory()
    seen = user((TextPart(text="see"), PICTURE))
    model = ScriptedModel(["ok"])
    agent = Agent(model=model, memory=memory, filters=[normalize_filter(images=False)])
    await agent.run(seen, conversation_id="c")
    (asked,) = model.requests[0].messages
    assert "[image 'cat.png' is left out" in asked.text
    assert (await memory.history("c"))[0] == seen


async def test_a_request_that_is_well_is_not_touched() -> None:
    model = ScriptedModel(["ok"])
    await Agent(model=model, filters=[normalize_filter()]).run(user("go"))
    assert list(model.requests[0].messages) == [user("go")]


def test_bad_options_fail_at_once() -> None:
    message = "thinking is 'none', expected 'keep' or 'before_current_turn'"
    with pytest.raises(ValueError, match=message):
        normalize_filter(thinking="none")  # type: ignore[arg-type]
