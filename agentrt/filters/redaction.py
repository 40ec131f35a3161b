"""Filters of the stream: keep secrets out of it, or hold it until it is released.

They change what readers see, and with `stored` also what is kept. A secret may be cut
into any number of deltas: what could still become one is held back until it is known.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial

from attrs import define, evolve, field

from agentrt.core.chat import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from agentrt.core.messages import AssistantMessage
from agentrt.core.parts import Content, TextPart
from agentrt.filters.base import ChatCall, Filter, Hook, hook
from agentrt.filters.secrets import Secret, Secrets, Stretch, secrets_of

__all__ = ["hold_filter", "redaction_filter"]


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
    itself. Arguments of tool calls are not. What is stored stays as it was, and so do
    the outcome and `run/finished`, unless `stored` is set: it redacts them as well, and
    drops the vendor's blocks of a message without calls.

    Raises:
        ValueError: there is no pattern, one matches the empty text, or `max_length` is
            below 1.
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
        chat=_storing(redact) if stored else None,
    )


def hold_filter(
    release: Callable[[str], bool],
    *,
    replacement: str = "[held back]",
    stored: bool = False,
) -> Filter:
    """Hold each message of the model back until it is whole; show it if `release` says.

    `release` is given the text, or the reasoning of a message without text, and must
    be quick; what it raises fails the call. On yes everything is shown, in order. On no
    readers see `replacement` in place of text and reasoning. Calls of tools are shown
    either way, since they run: an approval policy decides on those. A message that
    is cut or fails shows nothing.

    What is stored stays as it was, and so do the outcome and `run/finished`, unless
    `stored` is set: as with `redaction_filter`. Holds one message in memory.
    """

    def replace(message: AssistantMessage) -> AssistantMessage:
        said = message.text or message.reasoning
        if not said or release(said):
            return message
        return evolve(message, content=replacement, reasoning="")

    return Filter(
        name="hold",
        tokens=partial(_Hold, release, replacement),
        chat=_storing(replace) if stored else None,
    )


def _storing(
    change: Callable[[AssistantMessage], AssistantMessage],
) -> Hook[ChatCall]:
    """A hook that changes what the model said before anything keeps it."""

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        yield
        said = call.response.message
        changed = change(said)
        if changed != said:
            if not changed.tool_calls:  # with calls, a vendor may want them back
                changed = evolve(changed, blocks=None)
            call.response = evolve(call.response, message=changed)

    return chat


def _over_texts(change: Callable[[str], str], content: Content) -> Content:
    if isinstance(content, str):
        return change(content)
    return tuple(
        evolve(part, text=change(part.text)) if isinstance(part, TextPart) else part
        for part in content
    )


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
        if not said or self._release(said):
            return self._held
        calls = [d for d in self._held if isinstance(d, ToolCallDelta)]
        return [TextDelta(text=self._replacement), *calls]
