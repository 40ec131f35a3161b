"""The pure part of compaction: views, cuts, shares, and what a summarizer reads."""

from collections.abc import Sequence

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.history import find_history_faults
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.core.parts import FilePart, TextPart
from agentrt.filters.shortening import (
    NOTHING,
    Shortening,
    cut,
    digest,
    empty_results,
    fit_newest,
    transcript,
    view,
)
from agentrt.models.estimate import estimate_content, estimate_messages, estimate_text
from agentrt.testing.strategies import histories, messages

CALLS = (
    ToolCall(id="c1", name="look", arguments={"at": "x"}),
    ToolCall(id="c2", name="b"),
)
ASKS = AssistantMessage(id="m", content="I look.", tool_calls=CALLS)


def result(call_id: str, tokens: int) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="look", content="r" * 4 * tokens)


@given(st.lists(messages(), max_size=5))
def test_what_is_not_shortened_is_the_very_same(some: Sequence[Message]) -> None:
    assert view(some, NOTHING, cap=100) is some
    assert fit_newest(some, estimate_messages(some)) is some


@given(st.lists(messages(), min_size=1, max_size=5), st.data())
def test_a_digest_knows_order_and_number_and_no_words(
    some: Sequence[Message], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(some) - 1))
    reworded = [*some]
    reworded[place] = UserMessage(id=some[place].id, content=some[place].text + "!")
    assert digest(reworded) == digest(some), "a filter may have rephrased it"
    others = [some[:place], [*some, *some[:1]]]
    ids = [message.id for message in some]
    if ids[::-1] != ids:
        others.append(list(reversed(some)))
    assert digest(some) not in {digest(other) for other in others}


@given(histories(), st.integers(0, 12), st.integers(0, 4))
def test_a_shortening_is_about_the_messages_that_it_was_made_of(
    some: Sequence[Message], covered: int, keep: int
) -> None:
    short = empty_results(some, Shortening(covered=min(covered, len(some))), keep=keep)
    about = evolve(short, digest=digest(some[: short.length]))
    assert about.fits(some)
    assert about.fits([*some, UserMessage(content="more")])
    assert not short.length or not about.fits(some[: short.length - 1])


@given(histories(), st.integers(0, 400), st.integers(0, 3))
def test_a_cut_parts_no_call_from_its_results_and_grows(
    some: Sequence[Message], room: int, keep: int
) -> None:
    short = empty_results(some, NOTHING, keep=keep)
    known = -1
    for less in (room, room // 2, 0):
        longer = cut(some, short, room=less, cap=100)
        if longer is None:
            assert less == room or len(some) == 0
            return
        assert longer.covered >= known
        known = longer.covered
        shown = view(some, longer, cap=100)
        assert find_history_faults(shown) == []
        assert shown[-1].id == some[-1].id
        if less == 0:
            rest = [m for m in shown[1:] if not isinstance(m, ToolMessage)]
            assert len(rest) <= 2  # the newest block, and the question


@pytest.mark.parametrize(
    ("sizes", "room", "fitted"),
    [
        ((100, 100), 300, (100, 100)),
        ((1_000, 1_000), 600, (300, 300)),
        ((10, 1_000), 400, (10, 390)),
        ((1_000, 1_000), 10, (60, 60)),
    ],
)
def test_results_share_the_room_and_small_ones_leave_theirs(
    sizes: tuple[int, int], room: int, fitted: tuple[int, int]
) -> None:
    first: list[Message] = [UserMessage(content="go"), ASKS]
    results = [result("c1", sizes[0]), result("c2", sizes[1])]
    around = estimate_messages([*first, *results]) - sum(sizes)
    shown = fit_newest([*first, *results], around + room)
    assert list(shown[:2]) == first
    found = [estimate_content(message.content) for message in shown[2:]]
    assert all(want - 2 <= got <= want for got, want in zip(found, fitted, strict=True))


def test_files_of_a_result_that_is_cut_are_counted() -> None:
    picture = FilePart(media_type="image/png", data="AAAA")
    long = ToolMessage(call_id="c1", name="look", content=(picture, picture))
    (_, shown) = fit_newest([ASKS, long], 200)
    assert shown.content == "\n[2 file(s) left out]"


def test_a_summarizer_reads_who_said_what() -> None:
    pdf = FilePart(media_type="application/pdf", data="AAAA")
    talk: list[Message] = [
        UserMessage(content=(TextPart(text="see"), pdf)),
        ASKS,
        result("c1", 1_000),
    ]
    told = transcript(talk, cap=100)
    assert told.startswith(
        "user:\nsee\n[application/pdf file]\n\n"
        'assistant:\nI look.\ncalls look({"at": "x"})\ncalls b({})\n\n'
        "result of look:\nrrr"
    )
    assert "characters left out" in told
    assert estimate_text(told) <= 300
