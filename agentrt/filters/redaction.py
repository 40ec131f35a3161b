"""Filters of the stream: keep secrets out of it, or hold it until it is released.

They change what readers see, and with `stored` also what is kept. A secret may be cut
into any number of deltas: what could still become one is held back until it is known.

Several of them see one another's work, on the stream in the order of registration. Chat
hooks answer in the other order, so the innermost does for all what they do to what is
kept: in the order of the stream, and each answer of `release` as it was given there.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Final, TypeAlias, assert_never

from attrs import define, evolve, field

from agentrt.core.chat import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from agentrt.core.context import Context
from agentrt.core.errors import describe
from agentrt.core.messages import AssistantMessage
from agentrt.core.parts import Content, FilePart, NativePart, Part, TextPart
from agentrt.filters.base import ChatCall, Filter, Hook, ToolUse, hook
from agentrt.filters.secrets import Secret, Secrets, Stretch, secrets_of
from agentrt.tools.failures import result_of_failure

__all__ = ["hold_filter", "redaction_filter", "tool_redaction_filter"]

Change: TypeAlias = Callable[[AssistantMessage], AssistantMessage]

Decide: TypeAlias = Callable[[AssistantMessage], Change]
"""From the message as it is shown so far, what a filter does to it."""


@define(eq=False, kw_only=True)
class _Layer:
    """What one filter does in one model call."""

    decide: Decide
    stored: bool
    context: Context
    verdicts: dict[tuple[int, str], bool]
    """By `release` and text: of all layers of this call."""

    made: AssistantMessage | None = field(default=None, init=False)
    """What a layer within made of the answer, for this one too."""


LAYERS: Final[ContextVar[tuple[_Layer, ...]]] = ContextVar("layers", default=())
"""Of the model call that this task is in, the outermost first. No hook hands anything
inward but the request, which belongs to the vendor."""


def redaction_filter(
    patterns: Secret | Iterable[Secret],
    *,
    replacement: str = "[redacted]",
    max_length: int = 256,
    reasoning: bool = False,
    stored: bool = False,
) -> Filter:
    """Show `replacement` in place of secrets, also where deltas cut them in pieces.

    A text is looked for as it is, a compiled pattern by its matches. The leftmost match
    is replaced first; of two at one place a text, the longest, before a pattern, and
    patterns in their order. Readers see the text later: for texts, by what may be the
    beginning of one; with patterns, always by `max_length` characters. Of a match that
    is longer, or looks farther ahead, a part may be shown.

    With `reasoning` what the model thinks aloud is treated so too, each stretch by
    itself. Arguments of tool calls are not, nor are results: `tool_redaction_filter`
    does those. What is stored stays as it was, and so do the outcome and
    `run/finished`, unless `stored` is set: it redacts them as well, and drops the
    vendor's blocks of a message without calls.

    Raises:
        ValueError: there is no pattern, one matches the empty text, or `max_length` is
            below 1.
        TypeError: a pattern is neither a text nor a compiled pattern of text.
    """
    secrets = secrets_of(patterns, replacement, max_length)

    def redact(message: AssistantMessage) -> AssistantMessage:
        thoughts = message.reasoning
        return evolve(
            message,
            content=_over_texts(secrets.redact, message.content),
            reasoning=secrets.redact(thoughts) if reasoning else thoughts,
        )

    return Filter(
        name="redaction",
        tokens=partial(_Redaction, secrets, reasoning),
        chat=_layer_hook(lambda shown: redact, stored),
    )


def tool_redaction_filter(
    patterns: Secret | Iterable[Secret], *, replacement: str = "[redacted]"
) -> Filter:
    """Show `replacement` in place of secrets in what tools return, and in their errors.

    The model gets a result so, and so do readers and the history. Secrets are what they
    are in `redaction_filter`. Files, writes and what the program logs stay as they are.

    Register it last, next to the tools: other filters then get nothing else, as one
    that keeps long results elsewhere.

    Raises:
        ValueError: there is no pattern, or one matches the empty text.
        TypeError: a pattern is neither a text nor a compiled pattern of text.
    """
    secrets = secrets_of(patterns, replacement, max_length=1)

    @hook
    async def tool(call: ToolUse) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:
            words = describe(error)
            if secrets.redact(words) == words:
                raise
            call.response = result_of_failure(error, call.request.tool)
        result = call.response
        content = _over_texts(secrets.redact, result.content)
        if content != result.content:
            call.response = evolve(result, content=content)
            if call.context.tool_returned is not None:
                call.context.tool_returned(call.response)  # should we be stopped

    return Filter(name="tool_redaction", tool=tool)


def hold_filter(
    release: Callable[[str], bool],
    *,
    replacement: str = "[held back]",
    stored: bool = False,
) -> Filter:
    """Hold each message of the model back until it is whole; show it if `release` says.

    `release` is given the text, or the reasoning of a message without text, as the
    filters before this one show it. It is asked once and must be quick; what it raises
    fails the call. On yes everything is shown, in order. On no readers see
    `replacement` in place of text and reasoning. Calls of tools are shown either way,
    since they run: an approval policy decides on those. A message that is cut or fails
    shows nothing.

    What is stored stays as it was, and so do the outcome and `run/finished`, unless
    `stored` is set: as with `redaction_filter`. Holds one message in memory.
    """

    def replace(message: AssistantMessage) -> AssistantMessage:
        return evolve(message, content=replacement, reasoning="")

    def decide(shown: AssistantMessage) -> Change:
        said = shown.text or shown.reasoning
        fine = not said or _judge(release, said)
        return (lambda message: message) if fine else replace

    return Filter(
        name="hold",
        tokens=partial(_Hold, release, replacement),
        chat=_layer_hook(decide, stored),
    )


def _layer_hook(decide: Decide, stored: bool) -> Hook[ChatCall]:
    """A hook that changes what the model said before anything keeps it."""

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        before = LAYERS.get()
        # An agent that a filter asks has layers of its own.
        outer = before if before and before[-1].context is call.context else ()
        layer = _Layer(
            decide=decide,
            stored=stored,
            context=call.context,
            verdicts=outer[-1].verdicts if outer else {},
        )
        LAYERS.set((*outer, layer))
        try:
            yield
            said = call.response.message
            if said is not layer.made:
                made = _kept((*outer, layer), said)
                call.response = evolve(call.response, message=made)
                for each in outer:
                    each.made = made
        finally:
            LAYERS.set(before)

    return chat


def _kept(layers: Sequence[_Layer], said: AssistantMessage) -> AssistantMessage:
    """What is kept of what the model said: the message itself if nothing changes."""
    shown = kept = said
    last = max((at for at, layer in enumerate(layers) if layer.stored), default=-1)
    for layer in layers[: last + 1]:
        change = layer.decide(shown)
        shown = change(shown)
        kept = change(kept) if layer.stored else kept
    if kept == said:
        return said
    # With calls, a vendor may want its blocks back.
    return kept if kept.tool_calls else evolve(kept, blocks=None)


def _judge(release: Callable[[str], bool], said: str) -> bool:
    """What `release` says, or has said of the same words in this call."""
    layers = LAYERS.get()
    verdicts = layers[-1].verdicts if layers else {}
    # A stream joins the parts of a message without spaces.
    key = (id(release), "".join(said.split()))
    if key not in verdicts:
        verdicts[key] = release(said)
    return verdicts[key]


def _over_texts(change: Callable[[str], str], content: Content) -> Content:
    if isinstance(content, str):
        return change(content)
    return tuple(_over_part(change, part) for part in content)


def _over_part(change: Callable[[str], str], part: Part) -> Part:
    match part:
        case TextPart():
            return evolve(part, text=change(part.text))
        case NativePart() if part.text:
            return evolve(part, block={**part.block, "text": change(part.text)})
        case NativePart() | FilePart():
            return part
        case _:
            assert_never(part)


@define
class _Redaction:
    """The transform of one stream."""

    _secrets: Secrets
    _reasoning: bool
    _said: Stretch = field(init=False)
    _thought: Stretch | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._said = Stretch(self._secrets)

    def feed(self, delta: Delta) -> Iterable[Delta]:
        if isinstance(delta, ReasoningDelta) and self._reasoning:
            if self._thought is None:
                self._thought = Stretch(self._secrets)
            return _thinking(self._thought.feed(delta.text))
        # Another kind of delta ends a stretch of thinking; text goes on after calls.
        ended = self._end_thought()
        if isinstance(delta, TextDelta):
            return [*ended, *_saying(self._said.feed(delta.text))]
        return [*ended, delta]

    def finish(self) -> Iterable[Delta]:
        return [*self._end_thought(), *_saying(self._said.finish())]

    def _end_thought(self) -> Iterable[Delta]:
        if self._thought is None:
            return ()
        thought, self._thought = self._thought, None
        return _thinking(thought.finish())


def _saying(text: str) -> Iterable[Delta]:
    return [TextDelta(text=text)] if text else []


def _thinking(text: str) -> Iterable[Delta]:
    return [ReasoningDelta(text=text)] if text else []


@define
class _Hold:
    """The transform of one stream that shows nothing before its end."""

    _release: Callable[[str], bool]
    _replacement: str
    _held: list[Delta] = field(factory=list, init=False)

    def feed(self, delta: Delta) -> Iterable[Delta]:
        self._held.append(delta)
        return ()

    def finish(self) -> Iterable[Delta]:
        texts = [d.text for d in self._held if isinstance(d, TextDelta)]
        thoughts = [d.text for d in self._held if isinstance(d, ReasoningDelta)]
        said = "".join(texts) or "".join(thoughts)
        if not said or _judge(self._release, said):
            return self._held
        calls = [d for d in self._held if isinstance(d, ToolCallDelta)]
        return [TextDelta(text=self._replacement), *calls]
