"""Filters of the stream: keep secrets out of it, or hold it until it is released.

They change what readers see, and with `stored` also what is kept. A secret may be cut
into any number of deltas: what could still become one is held back until it is known.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Final, TypeAlias

from attrs import define, evolve, field, frozen

from agentrt.core.chat import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from agentrt.core.messages import AssistantMessage
from agentrt.core.parts import Content, TextPart
from agentrt.filters.base import ChatCall, Filter, Hook, hook

__all__ = ["hold_filter", "redaction_filter"]

Secret: TypeAlias = str | re.Pattern[str]

PATIENCE: Final = 8
"""Times the reach: how long a match that goes on and on is waited for."""


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
    secrets = _secrets_of(patterns, replacement, max_length)

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


@frozen(kw_only=True)
class _Secrets:
    """What is looked for, and how far it reaches."""

    texts: Sequence[str]
    """The longest first."""

    patterns: Sequence[re.Pattern[str]]
    """All of them, in the order in which they win; the first is that of the texts."""

    replacement: str
    reach: int
    """Characters that a pattern may match; as many are looked back at."""

    beginning: re.Pattern[str]
    """Finds where a text may begin, by its first character."""

    def redact(self, text: str) -> str:
        """A whole text without them."""
        stretch = _Stretch(self)
        return stretch.feed(text) + stretch.finish()

    def first(self, text: str, start: int) -> tuple[int, int] | None:
        """Where the first of them is."""
        found: list[tuple[int, int]] = []
        for pattern in self.patterns:
            spans = (match.span() for match in pattern.finditer(text, start))
            found.extend(islice((span for span in spans if span[0] < span[1]), 1))
        return min(found, key=itemgetter(0), default=None)

    def settled(self, text: str, start: int) -> int:
        """Up to where no more text can begin another match than there is now."""
        only_texts = len(self.patterns) == bool(self.texts)
        end = len(text) if only_texts else max(start, len(text) - self.reach)
        longest = len(self.texts[0]) if self.texts else 0
        for match in self.beginning.finditer(text, max(start, len(text) - longest)):
            begun = text[match.start() :]
            if any(t.startswith(begun) and t != begun for t in self.texts):
                return min(end, match.start())
        return end

    def is_open(self, text: str, span: tuple[int, int]) -> bool:
        """Whether a match may look otherwise when more text has come."""
        if span[1] < len(text) or text[span[0] :] in self.texts:
            return False
        return span[1] - span[0] < PATIENCE * self.reach


@define
class _Stretch:
    """A text that comes in pieces and leaves without secrets."""

    _secrets: _Secrets
    _text: str = field(default="", init=False)
    """What was sent on last, for patterns that look back, and what is held."""

    _held: int = field(default=0, init=False)
    """Where what is held begins."""

    def feed(self, piece: str) -> str:
        """What may be shown now."""
        self._text += piece
        return self._advance(self._secrets.settled(self._text, self._held))

    def finish(self) -> str:
        """What was held: no more comes."""
        return self._advance(len(self._text), final=True)

    def _advance(self, end: int, *, final: bool = False) -> str:
        shown: list[str] = []
        place = self._held
        span = self._secrets.first(self._text, place)
        while span is not None and span[0] < end:
            if not final and self._secrets.is_open(self._text, span):
                end = span[0]
                break
            shown += [self._text[place : span[0]], self._secrets.replacement]
            place = span[1]
            span = self._secrets.first(self._text, place)
        if place < end:
            shown.append(self._text[place:end])
            place = end
        drop = max(0, place - self._secrets.reach)
        self._text, self._held = self._text[drop:], place - drop
        return "".join(shown)


@define
class _Redaction:
    """The transform of one stream."""

    _secrets: _Secrets
    _reasoning: bool
    _said: _Stretch = field(init=False)
    _thought: _Stretch | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._said = _Stretch(self._secrets)

    def feed(self, delta: Delta) -> Iterable[Delta]:
        if isinstance(delta, ReasoningDelta) and self._reasoning:
            if self._thought is None:
                self._thought = _Stretch(self._secrets)
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


def _secrets_of(
    patterns: Secret | Iterable[Secret], replacement: str, max_length: int
) -> _Secrets:
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}, expected 1 or more characters")
    given = [patterns] if isinstance(patterns, str | re.Pattern) else list(patterns)
    if not given:
        raise ValueError("there is nothing to redact: no pattern was given")
    texts = sorted((p for p in given if isinstance(p, str)), key=len, reverse=True)
    compiled = [p for p in given if isinstance(p, re.Pattern)]
    if "" in texts or any(pattern.search("") for pattern in compiled):
        raise ValueError("a pattern matches the empty text, which is everywhere")
    firsts = "".join({text[0] for text in texts})
    own = [re.compile("|".join(map(re.escape, texts)))] if texts else []
    return _Secrets(
        texts=texts,
        patterns=[*own, *compiled],
        replacement=replacement,
        reach=max_length,
        beginning=re.compile(f"[{re.escape(firsts)}]" if texts else "(?!)"),
    )
