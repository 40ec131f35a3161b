"""The transcript says at every number what was said up to it."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentrt.events import types as e
from agentrt.events.emitter import Emitter
from agentrt.events.grammar import Grammar
from agentrt.events.transcript import Transcript
from agentrt.testing import check_stream


@define
class Reader:
    """What somebody knows who reads events one by one, or begins with a resync."""

    texts: dict[str, str] = field(factory=dict)
    thoughts: dict[str, str] = field(factory=dict)
    arguments: dict[str, Any] = field(factory=dict)
    results: dict[str, str] = field(factory=dict)

    def begin(self, resync: e.Resync) -> None:
        for message in resync.messages:
            self.take(message)
        for block in resync.reasoning:
            self.thoughts[block.id] = block.text
        for call_id, text in resync.partial_arguments.items():
            self.arguments[call_id] = text

    def take(self, message: Message) -> None:
        if isinstance(message, ToolMessage):
            self.results[message.call_id] = message.text
            return
        if message.text:
            self.texts[message.id] = message.text
        if isinstance(message, AssistantMessage):
            self.arguments.update({c.id: c.arguments for c in message.tool_calls})

    def read(self, event: e.Event) -> None:  # noqa: C901  a case for each event
        match event:
            case e.RunStarted():
                for message in event.input:
                    self.take(message)
            case e.MessageDelta():
                said = self.texts.get(event.message_id, "")
                self.texts[event.message_id] = said + event.text
            case e.ReasoningStarted():
                self.thoughts[event.message_id] = ""
            case e.MessageThinking():
                self.thoughts[event.message_id] += event.text
            case e.ToolStarted():
                self.arguments[event.call_id] = ""
            case e.ToolArgsDelta():
                self.arguments[event.call_id] += event.text
            case e.ToolEnded(cut=True):
                del self.arguments[event.call_id]
            case e.ToolEnded():
                self.arguments[event.call_id] = event.arguments
            case e.ToolReturned() if event.call_id in self.arguments:
                self.results[event.call_id] = str(event.content)


@define
class Teller:
    """Tells a conversation as the agent does, cut wherever the plan says."""

    draw: st.DrawFn
    envelopes: list[e.Envelope] = field(factory=list)
    grammar: Grammar = field(factory=lambda: Grammar(0))

    def conversation(self) -> Sequence[e.Envelope]:
        for number in range(self.draw(st.integers(1, 3))):
            emitter = Emitter(
                conversation_id="c",
                run_id=f"r{number}",
                grammar=self.grammar,
                record=self.envelopes.append,
                clock=lambda: 0.0,
            )
            said = UserMessage(id=f"u{number}", content=f"ask {number}")
            emitter.start(e.RunStarted(input=[said]))
            events = self.run(number)
            cut = self.draw(st.none() | st.integers(0, len(events)))
            for event in events[:cut]:
                emitter.emit(event)
            whole = e.RunFinished() if cut is None else e.RunCancelled(reason="stop")
            emitter.close(whole)
            assert emitter.drops == 0
        return self.envelopes

    def run(self, number: int) -> Sequence[e.Event]:
        events: list[e.Event] = []
        for index in range(self.draw(st.integers(0, 2))):
            events += self.iteration(f"r{number}-m{index}")
        return events

    def iteration(self, id_: str) -> Sequence[e.Event]:
        events: list[e.Event] = [e.ModelStarted(message_id=id_)]
        if self.draw(st.booleans()):
            events += self.thinking(id_)
        words = self.draw(st.lists(st.sampled_from(["a", "é", "\n"]), max_size=3))
        if words:
            events.append(e.MessageStarted(message_id=id_))
            events += [e.MessageDelta(message_id=id_, text=word) for word in words]
            events.append(e.MessageEnded(message_id=id_))
        calls = [f"{id_}-c{n}" for n in range(self.draw(st.integers(0, 3)))]
        for call_id in calls:
            events += self.call(call_id, id_)
        events.append(e.ModelFinished(message_id=id_, elapsed=0.0))
        for call_id in self.draw(st.permutations(calls)):
            events.append(
                e.ToolReturned(call_id=call_id, name="add", content=f"of {call_id}")
            )
        return events

    def thinking(self, id_: str) -> Sequence[e.Event]:
        block = f"{id_}-t"
        return [
            e.ReasoningStarted(message_id=block, parent_id=id_),
            e.MessageThinking(message_id=block, text="h"),
            e.MessageThinking(message_id=block, text="m"),
            e.ReasoningEnded(message_id=block),
        ]

    def call(self, call_id: str, message_id: str) -> Sequence[e.Event]:
        return [
            e.ToolStarted(call_id=call_id, name="add", message_id=message_id),
            e.ToolArgsDelta(call_id=call_id, text='{"a":'),
            e.ToolArgsDelta(call_id=call_id, text="1}"),
            e.ToolEnded(call_id=call_id, arguments={"a": 1}),
        ]


@st.composite
def conversations(draw: st.DrawFn) -> Sequence[e.Envelope]:
    return Teller(draw).conversation()


@given(conversations())
def test_a_reader_who_begins_anywhere_ends_with_the_same(
    envelopes: Sequence[e.Envelope],
) -> None:
    """P7: a resync at any number, and the rest, is the whole."""
    check_stream(envelopes)
    whole = Reader()
    for envelope in envelopes:
        whole.read(envelope.event)
    transcript = Transcript("c")
    for place in range(len(envelopes) + 1):
        if place:
            transcript.apply(envelopes[place - 1])
        resync = transcript.resync(place)
        late = Reader()
        late.begin(resync)
        for envelope in envelopes[place:]:
            late.read(envelope.event)
        assert late == whole, f"from {place} on"


@given(conversations())
def test_what_is_open_at_each_number_is_told(envelopes: Sequence[e.Envelope]) -> None:
    transcript, grammar = Transcript("c"), Grammar(0)
    for envelope in envelopes:
        transcript.apply(envelope)
        grammar.check(envelope)
        resync = transcript.resync(envelope.seq)
        opened = {*resync.open_messages, *resync.open_calls}
        assert opened == set(grammar.open)
        assert resync.run_id == grammar.run_id
        assert set(resync.partial_arguments) == set(resync.open_calls)


@given(conversations())
def test_results_stand_after_their_calls_in_call_order(
    envelopes: Sequence[e.Envelope],
) -> None:
    transcript = Transcript("c")
    for envelope in envelopes:
        transcript.apply(envelope)
    messages = transcript.messages
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            calls = [call.id for call in message.tool_calls]
            after = messages[place + 1 : place + 1 + len(calls)]
            assert [m.call_id for m in after if isinstance(m, ToolMessage)] == calls


def told(*events: e.Event, run_id: str = "r") -> Transcript:
    transcript = Transcript("c")
    for seq, event in enumerate(events, 1):
        transcript.apply(
            e.Envelope(seq=seq, conversation_id="c", run_id=run_id, at=0.0, event=event)
        )
    return transcript


USER = UserMessage(id="u", content="hi")
START = e.RunStarted(input=[USER])
SAYS: Sequence[e.Event] = [
    e.MessageStarted(message_id="m"),
    e.MessageDelta(message_id="m", text="wo"),
    e.MessageDelta(message_id="m", text="rd"),
]


def test_text_that_streams_is_a_partial_message() -> None:
    transcript = told(START, *SAYS)
    assert transcript.text_being_said() == "word"
    assert transcript.resync(4) == e.Resync(
        conversation_id="c",
        seq=4,
        messages=(USER, AssistantMessage(id="m", content="word", partial=True)),
        open_messages=("m",),
        run_id="r",
        run_seq=1,
    )


def test_a_message_whose_model_failed_stays_partial() -> None:
    """U19: what was said is kept, and marked."""
    end = e.ModelFinished(message_id="m", elapsed=0.0, error="cancelled")
    transcript = told(START, *SAYS, e.MessageEnded(message_id="m"), end)
    assert transcript.messages == [
        USER,
        AssistantMessage(id="m", content="word", partial=True),
    ]


def test_thinking_alone_is_no_message_but_is_shown() -> None:
    transcript = told(
        START,
        e.ReasoningStarted(message_id="t", parent_id="m"),
        e.MessageThinking(message_id="t", text="hm"),
        e.ReasoningEnded(message_id="t"),
        e.ModelFinished(message_id="m", elapsed=0.0),
    )
    resync = transcript.resync(5)
    assert resync.messages == (USER,)
    assert resync.reasoning == (e.ReasoningBlock(id="t", parent_id="m", text="hm"),)


def test_arguments_that_are_no_json_are_kept_as_they_came() -> None:
    transcript = told(
        START,
        e.ToolStarted(call_id="c", name="add", message_id="m"),
        e.ToolArgsDelta(call_id="c", text="{"),
        e.ToolEnded(call_id="c"),
        e.ModelFinished(message_id="m", elapsed=0.0),
    )
    call = ToolCall(id="c", name="add", invalid_arguments="{")
    assert transcript.messages == [USER, AssistantMessage(id="m", tool_calls=(call,))]
    assert transcript.arguments_of("c") == {}


def test_the_arguments_of_a_call_are_found() -> None:
    transcript = told(
        START,
        e.ToolStarted(call_id="c", name="add", message_id="m"),
        e.ToolEnded(call_id="c", arguments={"a": 1}),
        e.ModelFinished(message_id="m", elapsed=0.0),
    )
    found: Mapping[str, Any] = transcript.arguments_of("c")
    assert found == {"a": 1}
    assert transcript.arguments_of("d") == {}


def test_a_message_that_is_there_already_is_not_added_again() -> None:
    assert told(START, e.RunFinished(), START).messages == [USER]


def test_a_result_without_a_call_is_in_no_history() -> None:
    result = e.ToolReturned(call_id="c", name="add", content="2")
    assert told(START, result).messages == [USER]
