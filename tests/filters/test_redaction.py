"""Filters of the stream: no way of cutting a secret shows it, and nothing is lost."""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, evolve, field
from hypothesis import example, given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.chat import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from agentrt.core.errors import ServerError, ToolError
from agentrt.core.messages import AssistantMessage, Blocks, ToolMessage
from agentrt.core.outcomes import TurnCompleted, TurnFailed
from agentrt.core.parts import FilePart, NativePart, Part, TextPart
from agentrt.core.parts import text_of as text_of_parts
from agentrt.events import types as e
from agentrt.filters.base import ChatCall, Filter, TokenTransform, ToolUse, hook
from agentrt.filters.redaction import (
    hold_filter,
    redaction_filter,
    tool_redaction_filter,
)
from agentrt.filters.secrets import secrets_of
from agentrt.models.function import FunctionModel
from agentrt.runtime.runtime import open_runtime
from agentrt.stores.in_memory import InMemoryChatMemory
from agentrt.testing import (
    Say,
    ScriptedModel,
    call,
    cancel_sweep,
    check_stream,
    trio_property,
)
from agentrt.tools.base import Tool, ToolResult, tool
from tests.flow.worlds import RecordingStore


@tool
async def add(a: int) -> int:
    """Add one."""
    await trio.lowlevel.checkpoint()
    return a + 1


def transform(made: Filter) -> TokenTransform:
    assert made.tokens is not None
    return made.tokens()


def through(made: Filter, deltas: Iterable[Delta]) -> Sequence[Delta]:
    stream = transform(made)
    shown = [out for delta in deltas for out in stream.feed(delta)]
    return [*shown, *stream.finish()]


def says(*texts: str) -> Sequence[Delta]:
    return [TextDelta(text=text) for text in texts]


def thinks(*texts: str) -> Sequence[Delta]:
    return [ReasoningDelta(text=text) for text in texts]


def text_of(deltas: Iterable[Delta]) -> str:
    assert all(d.text for d in deltas if not isinstance(d, ToolCallDelta))
    return "".join(d.text for d in deltas if isinstance(d, TextDelta))


def thoughts_of(deltas: Iterable[Delta]) -> str:
    return "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))


# Redaction


@given(
    st.lists(st.text(alphabet="ab", min_size=1, max_size=5)),
    st.text(alphabet="ab", min_size=1, max_size=5),
)
@example(pieces=["a", "aab"], secret="aab")
@example(pieces=["aba", "ba"], secret="aba")
def test_how_a_text_was_cut_does_not_matter(pieces: list[str], secret: str) -> None:
    shown = text_of(through(redaction_filter(secret, replacement="#"), says(*pieces)))
    assert shown == "".join(pieces).replace(secret, "#")


def test_what_looks_like_a_match_only_so_far_is_waited_for() -> None:
    made = redaction_filter(re.compile(r"\b1+\b"), replacement="#", max_length=4)
    assert text_of(through(made, says("11111", "1a"))) == "111111a"
    assert text_of(through(made, says("11111", "11 1a"))) == "# 1a"


@given(
    st.lists(st.text(alphabet="ab1 ", min_size=1, max_size=6)),
    st.sampled_from(
        [
            r"a{1,3}b",
            r"a(?:b|b1)?",
            r"\b1+\b",
            r"(?<=a)b",
            r"(?m)^a",
            r"^ab",
            r"ab|a\b",
            r"a.?b",
            r"b{2}",
            r"(?i)AB",
            r"(?<!b)a",
            r"a(?= )",
        ]
    ),
)
def test_nor_does_it_for_patterns_that_reach_no_farther_than_they_may(
    pieces: list[str], pattern: str
) -> None:
    whole, compiled = "".join(pieces), re.compile(pattern)
    reach = max((len(m[0]) for m in compiled.finditer(whole)), default=1)
    made = redaction_filter(compiled, replacement="#", max_length=max(reach, 4))
    assert text_of(through(made, says(*pieces))) == compiled.sub("#", whole)


def leftmost(text: str, patterns: Sequence[re.Pattern[str]]) -> str:
    """The plain way, for a text that is whole."""
    place, shown = 0, ""
    while True:
        found = [m for p in patterns if (m := p.search(text, place)) is not None]
        if not found:
            return shown + text[place:]
        first = min(found, key=lambda match: match.start())
        shown += text[place : first.start()] + "#"
        place = first.end()


@given(
    st.lists(st.text(alphabet="abc1", min_size=1, max_size=6)),
    st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=3),
    st.lists(st.sampled_from([r"\d{1,3}", r"ca?b", r"b1?"]), max_size=2),
)
def test_of_several_the_leftmost_wins_then_the_longest_text_then_the_order(
    pieces: list[str], texts: list[str], patterns: list[str]
) -> None:
    if not texts and not patterns:
        return
    by_length = sorted(texts, key=len, reverse=True)
    compiled = [re.compile(pattern) for pattern in patterns]
    whole = "".join(pieces)
    runs = max((len(m[0]) for m in re.finditer(r"\d+", whole)), default=1)
    made = redaction_filter(
        [*texts, *compiled], replacement="#", max_length=max(4, runs)
    )
    ordered = [*(re.compile(re.escape(each)) for each in by_length), *compiled]
    assert text_of(through(made, says(*pieces))) == leftmost(whole, ordered)


@define(eq=False)
class Counting:
    """A pattern that counts the characters it goes over."""

    pattern: re.Pattern[str]
    gone_over: int = 0

    def finditer(self, text: str, start: int) -> Iterator[re.Match[str]]:
        for match in self.pattern.finditer(text, start):
            self.gone_over += match.start() - start + 1
            start = match.end()
            yield match
        self.gone_over += len(text) - start


@given(
    st.lists(st.sampled_from(["a", "b1", "aaab", "ccccc", " "]), max_size=60),
    st.lists(st.sampled_from([r"a", r"b1?", r"a{3}b", r"x", r"(?=c)"]), max_size=4),
)
@example(pieces=["aaab", "ccccc"] * 50, patterns=["a", "x"])
def test_each_pattern_goes_over_a_text_once_however_many_secrets_there_are(
    pieces: list[str], patterns: list[str]
) -> None:
    counting: list[Any] = [Counting(re.compile(pattern)) for pattern in patterns]
    secrets = evolve(secrets_of("none", "#", 4), texts=[], patterns=counting)
    text = "".join(pieces)
    assert secrets.redact(text) == leftmost(
        text, [re.compile(p) for p in patterns if p != "(?=c)"]
    )
    assert all(each.gone_over <= 4 * len(text) + 4 for each in counting)


def test_text_that_can_begin_no_secret_is_shown_at_once() -> None:
    stream = transform(redaction_filter("s3cret"))
    shown = [text_of(list(stream.feed(delta))) for delta in says("a", " s", "3c", "x")]
    assert shown == ["a", " ", "", "s3cx"]


def test_with_a_pattern_the_text_comes_later_by_its_reach() -> None:
    stream = transform(redaction_filter(re.compile(r"\d+"), max_length=3))
    shown = [
        text_of(list(stream.feed(delta))) for delta in says("abc", "de", "12", "3")
    ]
    assert shown == ["", "ab", "cd", "e"]
    assert text_of(list(stream.finish())) == "[redacted]"


def test_reasoning_is_let_be_unless_it_is_asked_for() -> None:
    """B30"""
    deltas = [*thinks("my s3", "cret"), *says("s3cret")]
    plain = through(redaction_filter("s3cret"), deltas)
    assert plain == [*thinks("my s3", "cret"), *says("[redacted]")]
    both = through(redaction_filter("s3cret", reasoning=True), deltas)
    assert (thoughts_of(both), text_of(both)) == ("my [redacted]", "[redacted]")


def test_a_stretch_of_thinking_ends_before_what_follows() -> None:
    deltas = [*thinks("s3"), *says("cret"), *thinks("cret s3"), *thinks("cret")]
    shown = through(redaction_filter("s3cret", reasoning=True), deltas)
    assert shown == [*thinks("s3"), *says("cret"), *thinks("cret "),
                     *thinks("[redacted]")]  # fmt: skip


def test_calls_pass_at_once_and_cut_no_secret_in_two() -> None:
    piece = ToolCallDelta(index=0, id="1", name="add", arguments='{"a": "s3cret"}')
    shown = through(redaction_filter("s3cret"), [*says("a s3"), piece, *says("cret")])
    assert shown == [*says("a "), piece, *says("[redacted]")]


def test_a_match_without_end_is_waited_for_only_so_long_and_then_hidden() -> None:
    stream = transform(redaction_filter(re.compile(r"\d+"), max_length=4))
    shown = [text_of(list(stream.feed(delta))) for delta in says(*"1" * 40)]
    assert "".join(shown[:31]) == ""
    assert shown[31] == "[redacted]"
    assert set(shown[32:]) == {""}
    assert text_of(list(stream.finish())) == "[redacted]"


@pytest.mark.parametrize(
    ("patterns", "options", "words"),
    [
        ([], {}, "no pattern was given"),
        ([""], {}, "matches the empty text"),
        ([re.compile("a*")], {}, "matches the empty text"),
        (["a"], {"max_length": 0}, "max_length is 0, expected 1 or more"),
    ],
)
def test_patterns_that_cannot_work_are_refused(
    patterns: Any, options: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        redaction_filter(patterns, **options)


NO_SECRETS = st.one_of(
    st.none(),
    st.integers(),
    st.binary(),
    st.just(re.compile(rb"s3cret")),
    st.lists(st.text(), max_size=2),
    st.dictionaries(st.text(), st.text(), max_size=1),
)


@given(st.lists(st.sampled_from(["a", re.compile("b")])), NO_SECRETS)
@example(before=[], wrong=b"s3cret")
@example(before=[], wrong=re.compile(rb"s3cret"))
def test_what_is_neither_a_text_nor_a_pattern_is_refused_and_not_named(
    before: list[Any], wrong: Any
) -> None:
    words = f"pattern {len(before) + 1} of {len(before) + 2} is a"
    with pytest.raises(TypeError, match=words) as refused:
        redaction_filter([*before, wrong, "a"])
    assert "s3cret" not in str(refused.value)


def test_a_pattern_that_matches_nothing_but_a_place_hides_nothing() -> None:
    made = redaction_filter(re.compile(r"(?=b)"), max_length=2)
    assert text_of(through(made, says("ab", "b"))) == "abb"


# Hold


def noting(asked: list[str]) -> Callable[[str], bool]:
    """Releases everything, and notes what it was asked about."""

    def release(text: str) -> bool:
        asked.append(text)
        return True

    return release


def test_what_is_released_is_shown_whole_and_in_order() -> None:
    """B30: nothing before the end."""
    call_piece = ToolCallDelta(index=0, id="1", name="add", arguments="{}")
    deltas = [*thinks("hm"), *says("a", "b"), call_piece, *says("c")]
    asked: list[str] = []
    stream = transform(hold_filter(noting(asked)))
    assert [list(stream.feed(delta)) for delta in deltas] == [[]] * len(deltas)
    assert list(stream.finish()) == deltas
    assert asked == ["abc"]


def test_what_is_refused_is_one_text_and_the_calls() -> None:
    """B30: the calls run, so nobody hides them."""
    pieces = [
        ToolCallDelta(index=0, id="1", name="add"),
        ToolCallDelta(index=0, arguments='{"a": 1}'),
    ]
    deltas = [*thinks("hm"), *says("a"), pieces[0], *says("b"), pieces[1]]
    shown = through(hold_filter(lambda text: False, replacement="no"), deltas)
    assert shown == [TextDelta(text="no"), *pieces]


@pytest.mark.parametrize(
    ("deltas", "asked"),
    [
        ([], []),
        ([ToolCallDelta(index=0, id="1", name="add")], []),
        (thinks("h", "m"), ["hm"]),
        ([*thinks("hm"), *says("a")], ["a"]),
    ],
)
def test_it_asks_about_the_text_or_else_the_reasoning(
    deltas: Sequence[Delta], asked: Sequence[str]
) -> None:
    got: list[str] = []
    assert through(hold_filter(noting(got)), deltas) == deltas
    assert got == asked


# Whole turns


async def run(
    made: Filter | Sequence[Filter], *steps: Any
) -> tuple[Agent, Any, Sequence[e.Event]]:
    """An agent after its turn, the outcome, and what a reader was told."""
    filters = [made] if isinstance(made, Filter) else made
    agent = Agent(model=ScriptedModel(steps), tools=[add], filters=filters)
    store = RecordingStore()
    async with open_runtime(agent, events=store) as runtime:
        started = await runtime.start_run("c", "go")
        outcome = await started.wait()
    check_stream(store.everything)
    return agent, outcome, [envelope.event for envelope in store.everything]


def told(events: Sequence[e.Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, e.MessageDelta))


REDACTS = redaction_filter("s3cret")
HOLDS = hold_filter(lambda text: "s3cret" not in text)


@pytest.mark.parametrize(
    ("made", "shown"), [(REDACTS, "a [redacted]"), (HOLDS, "[held back]")]
)
async def test_readers_see_it_and_the_outcome_and_the_history_do_not(
    made: Filter, shown: str
) -> None:
    """B30: the response stays as it was."""
    agent, outcome, events = await run(made, Say(text=["a s3", "cret"]))
    assert told(events) == shown
    assert isinstance(outcome, TurnCompleted)
    assert outcome.text == "a s3cret"
    assert [m.text for m in await agent.history("c")] == ["go", "a s3cret"]


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (redaction_filter("s3cret", stored=True), "a [redacted]"),
        (hold_filter(lambda text: "s3cret" not in text, stored=True), "[held back]"),
    ],
)
async def test_stored_words_are_those_that_were_shown_if_asked_for(
    made: Filter, shown: str
) -> None:
    agent, outcome, events = await run(made, Say(text=["a s3", "cret"]))
    assert told(events) == outcome.text == shown
    assert [m.text for m in await agent.history("c")] == ["go", shown]


async def test_a_released_message_is_stored_as_it_was() -> None:
    made = hold_filter(lambda text: True, stored=True)
    agent, outcome, events = await run(made, Say(text="fine", reasoning="hm"))
    message = (await agent.history("c"))[1]
    assert isinstance(message, AssistantMessage)
    assert (message.text, message.reasoning) == ("fine", "hm")
    assert told(events) == outcome.text == "fine"


@pytest.mark.parametrize("made", [REDACTS, HOLDS])
@pytest.mark.parametrize("error", [ServerError("down"), None])
async def test_what_is_held_is_not_shown_when_the_call_fails_or_is_stopped(
    made: Filter, error: ServerError | None, autojump_clock: trio.testing.MockClock
) -> None:
    """B30, X4"""
    say = Say(text=["a", " s3cre"], error=error, delay_seconds=1)
    if error is None:
        say = Say(text=["a", " s3cre", "t"], delay_seconds=1)
    agent = Agent(model=ScriptedModel([say]), filters=[made])
    texts: list[str] = []

    def listen(event: e.Event) -> None:
        if isinstance(event, e.MessageDelta):
            texts.append(event.text)

    with trio.move_on_after(2.5):
        outcome = await agent.run("go", conversation_id="c", emit=listen)
        assert isinstance(outcome, TurnFailed)
    assert "".join(texts) == ("a " if made is REDACTS else "")
    kept = [m.text for m in await agent.history("c")]
    assert kept == (["go", "a "] if made is REDACTS else ["go"])


async def test_a_refused_message_with_calls_shows_the_calls_and_they_run() -> None:
    asks = Say(text=["s3", "cret"], reasoning="hm", calls=(call("add", id="1", a=2),))
    _, outcome, events = await run(HOLDS, asks, "done")
    kinds = [type(event).__name__ for event in events if not isinstance(
        event, e.ModelStarted | e.ModelFinished | e.IterationStarted)]  # fmt: skip
    assert kinds == [
        "RunStarted",
        "MessageStarted",
        "MessageDelta",
        "ToolStarted",
        "ToolArgsDelta",
        "MessageEnded",
        "ToolEnded",
        "ToolReturned",
        "MessageStarted",
        "MessageDelta",
        "MessageEnded",
        "RunFinished",
    ]
    assert told(events) == "[held back]done"
    assert [record.content for record in outcome.calls] == ["3"]


async def test_a_call_keeps_its_arguments_through_every_filter() -> None:
    asks = Say(text="s3cret", calls=(call("add", id="1", a=2),))
    for made in (REDACTS, HOLDS, [REDACTS, HOLDS], [HOLDS, REDACTS]):
        _, outcome, events = await run(made, asks, "done")
        pieces = [x.text for x in events if isinstance(x, e.ToolArgsDelta)]
        assert "".join(pieces) == '{"a": 2}'
        assert isinstance(outcome, TurnCompleted)


async def test_a_filter_after_another_sees_what_that_one_shows() -> None:
    _, _, events = await run([REDACTS, HOLDS], Say(text=["a s3", "cret"]))
    assert told(events) == "a [redacted]"
    _, _, events = await run([HOLDS, REDACTS], Say(text=["a s3", "cret"]))
    assert told(events) == "[held back]"


def hides(word: str, *, stored: bool = True) -> Filter:
    return redaction_filter(word, replacement="#", stored=stored)


def holds(word: str, asked: list[str] | None = None, *, stored: bool = True) -> Filter:
    def release(text: str) -> bool:
        if asked is not None:
            asked.append(text)
        return word not in text

    return hold_filter(release, replacement="no", stored=stored)


@pytest.mark.parametrize(
    ("made", "shown", "kept"),
    [
        ([holds("AC"), hides("AC")], "no", "no"),
        ([hides("AC"), holds("AC")], "a #", "a #"),
        ([hides("AC", stored=False), holds("AC")], "a #", "a AC"),
        ([holds("AC"), hides("AC", stored=False)], "no", "no"),
        ([holds("AC", stored=False), hides("AC")], "no", "a #"),
        ([hides("AC"), holds("AC", stored=False)], "a #", "a #"),
        ([hides("AC"), hides("a #")], "#", "#"),
        ([hides("AC"), holds("#")], "no", "no"),
        ([holds("AC"), hides("no")], "#", "#"),
    ],
)
async def test_readers_outcome_and_history_agree_in_whatever_order_they_stand(
    made: Sequence[Filter], shown: str, kept: str
) -> None:
    agent, outcome, events = await run(made, Say(text=["a A", "C"]))
    history = await agent.history("c")
    assert (told(events), outcome.text, history[1].text) == (shown, kept, kept)


WORDS = st.text(alphabet="abno#", min_size=1, max_size=3)


@given(
    st.lists(st.tuples(st.booleans(), WORDS), max_size=4),
    st.lists(st.text(alphabet="ab#", min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(0, 4),
    st.booleans(),
)
@trio_property
async def test_all_that_are_stored_keep_what_they_show_and_ask_once(
    kinds: list[tuple[bool, str]], pieces: list[str], place: int, again: bool
) -> None:
    """Also around a filter that asks the model twice, or another agent first."""
    asked: list[list[str]] = [[] for _ in kinds]
    made = [
        holds(word, asked[at]) if is_hold else hides(word)
        for at, (is_hold, word) in enumerate(kinds)
    ]
    other = Agent(model=ScriptedModel(["a#b"] * 2), filters=[hides("#b")])
    others: list[str] = []

    @hook
    async def between(call: ChatCall) -> AsyncIterator[None]:
        answer = await other.run("go")
        assert isinstance(answer, TurnCompleted)
        others.append(answer.text)
        yield
        if again:
            await call.rerun()

    say = Say(text=pieces)
    with_other = [*made[:place], Filter(name="x", chat=between), *made[place:]]
    agent = Agent(model=ScriptedModel([say, say]), filters=with_other)
    events: list[e.Event] = []
    outcome = await agent.run("go", conversation_id="c", emit=events.append)
    assert isinstance(outcome, TurnCompleted)
    ids = [x.message_id for x in events if isinstance(x, e.MessageStarted)]
    shown = "".join(
        x.text
        for x in events
        if isinstance(x, e.MessageDelta) and x.message_id == ids[-1]
    )
    assert outcome.text == shown
    assert (await agent.history("c"))[-1].text == shown
    assert others == ["a#"]
    assert all(len(texts) <= 1 + again for texts in asked)


async def test_who_judges_is_asked_once_a_message() -> None:
    """A judge that changes its mind: what was held is not kept."""
    asked: list[str] = []

    def release(text: str) -> bool:
        asked.append(text)
        return len(asked) > 1

    agent, outcome, events = await run(hold_filter(release, stored=True), "a b")
    assert told(events) == outcome.text == "[held back]"
    assert [m.text for m in await agent.history("c")] == ["go", "[held back]"]
    assert asked == ["a b"]


async def test_what_a_filter_says_in_place_of_the_model_is_redacted_too() -> None:
    @hook
    async def answer(call: ChatCall) -> AsyncIterator[None]:
        yield
        message = evolve(call.response.message, content="AC, I say")
        call.response = evolve(call.response, message=message)

    known = Filter(name="answer", chat=answer)
    for made in ([hides("AC"), known, holds("b")], [hides("AC"), holds("b"), known]):
        agent, outcome, _ = await run(made, "b")
        assert outcome.text == (await agent.history("c"))[1].text == "#, I say"


async def test_a_model_that_does_not_stream_is_treated_alike() -> None:
    for made, shown in ((REDACTS, "a [redacted]"), (HOLDS, "[held back]")):
        agent = Agent(model=FunctionModel(lambda request: "a s3cret"), filters=[made])
        events: list[e.Event] = []
        await agent.run("go", emit=events.append)
        assert told(events) == shown


async def test_a_release_that_raises_shows_nothing() -> None:
    def release(text: str) -> bool:
        raise ValueError("cannot judge")

    agent = Agent(model=ScriptedModel(["s3cret"]), filters=[hold_filter(release)])
    events: list[e.Event] = []
    with pytest.raises(ValueError, match="cannot judge"):
        await agent.run("go", conversation_id="c", emit=events.append)
    assert told(events) == ""
    assert [m.text for m in await agent.history("c")] == ["go"]


BLOCKS = Blocks(provider="p", format="f", data=["s3cret"])
PICTURE = FilePart(media_type="image/png", data="aGk=")


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        (
            {"content": "s3cret", "reasoning": "s3cret", "blocks": BLOCKS},
            {"content": "[redacted]", "reasoning": "s3cret"},
        ),
        (
            {"content": (TextPart(text="s3cret"), PICTURE)},
            {"content": (TextPart(text="[redacted]"), PICTURE)},
        ),
        (
            {"content": "s3cret", "tool_calls": (call("add", id="1", a=1),),
             "blocks": BLOCKS},
            {"content": "[redacted]", "tool_calls": (call("add", id="1", a=1),),
             "blocks": BLOCKS},
        ),
        ({"content": "fine", "blocks": BLOCKS}, {"content": "fine", "blocks": BLOCKS}),
    ],
)  # fmt: skip
async def test_a_message_is_stored_without_secrets_in_its_texts(
    said: Any, stored: Any
) -> None:
    answers = [AssistantMessage(id="", content="end"), AssistantMessage(id="", **said)]
    agent = Agent(
        model=FunctionModel(lambda request: answers.pop()),
        tools=[add],
        filters=[redaction_filter("s3cret", stored=True)],
    )
    await agent.run("go", conversation_id="c")
    message = (await agent.history("c"))[1]
    assert message == AssistantMessage(id=message.id, **stored)


BLOCKS_OF_PARTS: Sequence[dict[str, Any]] = [
    {"text": "my s3cret"},
    {"text": 3},
    {"type": "image"},
]
PARTS = st.lists(
    st.builds(TextPart, text=st.text(alphabet="s3cret ", max_size=9))
    | st.sampled_from(BLOCKS_OF_PARTS).map(lambda block: NativePart(block=block))
    | st.just(PICTURE),
    min_size=1,
    max_size=5,
)


@given(PARTS)
@example([NativePart(block={"type": "text", "text": "my s3cret", "citations": []})])
@trio_property
async def test_of_no_kind_of_part_the_words_are_stored_with_a_secret(
    parts: Sequence[Part],
) -> None:
    said = AssistantMessage(id="", content=parts)
    agent = Agent(
        model=FunctionModel(lambda request: said),
        filters=[redaction_filter("s3cret", stored=True)],
    )
    outcome = await agent.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert "s3cret" not in outcome.text
    kept = [m.text for m in await agent.history("c")][1:]
    whole = text_of_parts(parts).replace("s3cret", "[redacted]")
    assert kept == [outcome.text] == [whole] or not whole


async def test_stored_reasoning_is_redacted_where_reasoning_is() -> None:
    made = redaction_filter("s3cret", reasoning=True, stored=True)
    agent, _, events = await run(made, Say(text="x", reasoning="a s3cret"))
    message = (await agent.history("c"))[1]
    assert isinstance(message, AssistantMessage)
    thoughts = [x.text for x in events if isinstance(x, e.MessageThinking)]
    assert "".join(thoughts) == message.reasoning == "a [redacted]"


# What tools return


def giving(result: Any) -> Tool:
    @tool(name="give")
    async def give() -> Any:
        """Give it."""
        await trio.lowlevel.checkpoint()
        if isinstance(result, BaseException):
            raise result
        return result

    return give


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("a s3cret", "a [redacted]"),
        ("fine", "fine"),
        ({"key": "s3cret"}, '{"key": "[redacted]"}'),
        (
            ToolResult(content=(TextPart(text="s3cret"), PICTURE)),
            (TextPart(text="[redacted]"), PICTURE),
        ),
        (ToolResult(content="s3cret", is_error=True), "[redacted]"),
        (ToolError("no s3cret"), "error: no [redacted]"),
        (ToolError("no"), "error: no"),
        (ValueError("s3cret"), "error: [redacted]"),
    ],
)
async def test_neither_model_nor_readers_nor_history_get_a_secret_of_a_tool(
    result: Any, content: Any
) -> None:
    model = ScriptedModel([call("give"), "done"])
    agent = Agent(
        model=model, tools=[giving(result)], filters=[tool_redaction_filter("s3cret")]
    )
    events: list[e.Event] = []
    outcome = await agent.run("go", conversation_id="c", emit=events.append)
    assert [record.content for record in outcome.calls] == [content]
    returned = [each.content for each in events if isinstance(each, e.ToolReturned)]
    assert returned == [content]
    told = [m for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert [message.content for message in told] == [content]
    assert "s3cret" not in repr([events, await agent.history("c"), model.requests])


async def test_a_failure_of_a_tool_stays_what_it_was() -> None:
    seen: list[ToolResult] = []

    @hook
    async def look(use: ToolUse) -> AsyncIterator[None]:
        yield
        seen.append(use.response)

    error = ToolError("s3cret is out", kind="environment")
    agent = Agent(
        model=ScriptedModel([call("give"), "done"]),
        tools=[giving(error)],
        filters=[Filter(name="look", tool=look), tool_redaction_filter("s3cret")],
    )
    await agent.run("go")
    assert [(each.is_error, each.failure) for each in seen] == [(True, "environment")]


@define
class World:
    memory: InMemoryChatMemory = field(factory=InMemoryChatMemory)
    events: list[e.Event] = field(factory=list)


def test_wherever_it_is_stopped_no_secret_of_a_tool_is_told() -> None:
    @hook
    async def dawdle(use: ToolUse) -> AsyncIterator[None]:
        yield
        await trio.sleep(1)

    async def scenario(world: World) -> None:
        agent = Agent(
            model=ScriptedModel([call("give"), "done"]),
            tools=[giving("a s3cret")],
            filters=[
                Filter(name="slow", tool=dawdle),
                tool_redaction_filter("s3cret"),
            ],
            memory=world.memory,
        )
        await agent.run("go", conversation_id="c", emit=world.events.append)

    async def check(world: World) -> None:
        assert "s3cret" not in repr([world.events, await world.memory.history("c")])

    assert cancel_sweep(World, scenario, check).runs > 20
