"""Views of a history that take fewer tokens: the pure part of compaction.

What is remembered of a conversation is a `Shortening`: up to which message results of
tools are left out or capped, and which messages a summary stands for. `view` is a plain
function of the history and that, so the same bytes come out of it call after call, and
a provider's prompt cache holds. Calls and their results are never parted.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from attrs import evolve, frozen

from agentrt.core.messages import (
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    text_of_value,
    tool_calls_of,
)
from agentrt.core.parts import Content, FilePart, text_of
from agentrt.core.truncate import truncate_middle
from agentrt.models.estimate import estimate_content, estimate_messages, estimate_text

__all__ = [
    "NOTHING",
    "Shortening",
    "cut",
    "digest",
    "empty_results",
    "fit_newest",
    "transcript",
    "view",
]

SUMMARY: Final = "Summary of the conversation so far:\n\n{}"
EMPTIED: Final = "[This result was left out to save room: {:,} characters.]"
FILES: Final = "\n[{} file(s) left out]"

WORTH_TOKENS: Final = 50
"""Results that take less are not worth leaving out."""

LEAST_TOKENS: Final = 60
"""The marker of what was cut must fit."""


@frozen(kw_only=True)
class Shortening:
    """What compaction remembers of a conversation. Only data."""

    covered: int = 0
    """Messages from the start that the summary stands for."""

    summary: str = ""
    question: int | None = None
    """A user's message that is covered and shown all the same: it was the newest."""

    emptied: int = 0
    """Messages from the start whose results, if they are such, are a line of text."""

    capped: int = 0
    """Messages from the start whose results are cut to a cap."""

    digest: str = ""
    """Of the messages that this is about; another one means that they changed."""

    failures: int = 0
    """Of the summarizer, without a success between."""

    @property
    def length(self) -> int:
        """Messages from the start that this is about."""
        return max(self.covered, self.emptied, self.capped)

    def fits(self, messages: Sequence[Message]) -> bool:
        """Whether it is about these messages."""
        known = messages[: self.length]
        return len(known) == self.length and digest(known) == self.digest


NOTHING: Final = Shortening()


def digest(messages: Sequence[Message]) -> str:
    """The same for the same messages, by their ids: a filter may have rephrased one."""
    hashed = hashlib.sha256()
    for message in messages:
        hashed.update(f"{message.id}\0".encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


def view(
    messages: Sequence[Message], short: Shortening, *, cap: int
) -> Sequence[Message]:
    """The messages as they are shown; the very same if nothing is shortened.

    System messages stay, first; then the summary, the question, and the rest.
    """
    if not short.length:
        return messages
    covered = short.covered
    systems = (m for m in messages[:covered] if isinstance(m, SystemMessage))
    shown: list[Message] = [*systems]
    if covered:
        id_ = f"summary-{digest(messages[:covered])[:16]}"
        shown.append(UserMessage(id=id_, content=SUMMARY.format(short.summary)))
    if short.question is not None:
        shown.append(messages[short.question])
    rest = enumerate(messages[covered:], covered)
    return [*shown, *(_shown(place, message, short, cap) for place, message in rest)]


def _shown(place: int, message: Message, short: Shortening, cap: int) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    if place < short.emptied and estimate_content(message.content) > WORTH_TOKENS:
        return evolve(message, content=EMPTIED.format(len(message.text)))
    if place < short.capped:
        return evolve(message, content=_capped(message.content, cap))
    return message


def _capped(content: Content, tokens: int) -> Content:
    """The content within so many tokens; the very same if it is so already."""
    if estimate_content(content) <= tokens:
        return content
    parts = () if isinstance(content, str) else content
    files = sum(isinstance(part, FilePart) for part in parts)
    more = FILES.format(files) if files else ""
    room = max(LEAST_TOKENS, tokens - estimate_text(more))
    return truncate_middle(text_of(content), room, measure=estimate_text) + more


def newest_block(messages: Sequence[Message]) -> int:
    """Where the newest block begins: a message, or a message with its results."""
    place = len(messages) - 1
    while place > 0 and isinstance(messages[place], ToolMessage):
        place -= 1
    return max(0, place)


def empty_results(
    messages: Sequence[Message], short: Shortening, *, keep: int
) -> Shortening:
    """Leave out all results but the newest `keep`; cap those that the model has read.

    The newest block stays as it is: the model has not seen its results.
    """
    newest = newest_block(messages)
    places = [n for n, m in enumerate(messages) if isinstance(m, ToolMessage)]
    older = places[: len(places) - keep] if keep else places
    emptied = min(older[-1] + 1, newest) if older else 0
    return evolve(
        short,
        emptied=max(short.emptied, emptied),
        capped=max(short.capped, newest),
    )


def cut(
    messages: Sequence[Message],
    short: Shortening,
    *,
    room: int,
    cap: int,
) -> Shortening | None:
    """Cover as little more as leaves the rest within `room` tokens.

    Where nothing fits, all but the newest block is covered. The summary is the old one
    still. None when there is no more to cover.
    """
    costs = [
        estimate_messages([_shown(n, m, short, cap)]) for n, m in enumerate(messages)
    ]
    systems = 0
    rest = sum(costs)
    best = None
    newest = newest_block(messages)
    for place, message in enumerate(messages[: newest + 1]):
        if place > short.covered and not isinstance(message, ToolMessage):
            best = place
            asked = _question(messages, place)
            question = 0 if asked is None else costs[asked]
            if systems + question + rest <= room:
                break
        systems += costs[place] if isinstance(message, SystemMessage) else 0
        rest -= costs[place]
    if best is None:
        return None
    return evolve(short, covered=best, question=_question(messages, best))


def _question(messages: Sequence[Message], covered: int) -> int | None:
    """The user's last message, if it is among those that are covered."""
    for place in range(len(messages) - 1, -1, -1):
        if isinstance(messages[place], UserMessage):
            return place if place < covered else None
    return None


def fit_newest(messages: Sequence[Message], room: int) -> Sequence[Message]:
    """Cut the results of the newest block, if the messages do not fit without that."""
    over = estimate_messages(messages) - room
    first = newest_block(messages) + 1
    results = [m for m in messages[first:] if isinstance(m, ToolMessage)]
    if over <= 0 or not results:
        return messages
    sizes = [estimate_content(message.content) for message in results]
    share = _share(sizes, sum(sizes) - over)
    fitted = [evolve(m, content=_capped(m.content, share)) for m in results]
    return [*messages[:first], *fitted]


def _share(sizes: Sequence[int], room: int) -> int:
    """The most that each may have, so that all have room: small ones leave theirs."""
    left = room
    for done, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - done)
        if size > share:
            return max(LEAST_TOKENS, share)
        left -= size
    return max(sizes)


def transcript(messages: Sequence[Message], *, cap: int) -> str:
    """The messages as text, for a model to read about; each held to `cap` tokens."""
    return "\n\n".join(
        truncate_middle(_lines(message), cap, measure=estimate_text)
        for message in messages
    )


def _lines(message: Message) -> str:
    content = message.content
    parts = () if isinstance(content, str) else content
    files = [part for part in parts if isinstance(part, FilePart)]
    told = [message.text, *(f"[{part.media_type} file]" for part in files)]
    calls = [
        f"calls {call.name}({text_of_value(call.arguments)})"
        for call in tool_calls_of(message)
    ]
    return "\n".join([f"{_who(message)}:", *(line for line in (*told, *calls) if line)])


def _who(message: Message) -> str:
    if isinstance(message, ToolMessage):
        return f"result of {message.name}"
    kind = type(message).__name__.removesuffix("Message")
    return kind.lower()
