"""The question of a turn in other words, for the model and for nobody else.

What filters share that add something to what the user said. Part of the trunk. The
history keeps the user's own words: the turn hook finds the question and keeps what
belongs to it in the turn's values, and the chat hook, within the memory, changes the
request as the model sees it, in every call of the turn.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from attrs import evolve

from agentrt.core.chat import ChatRequest
from agentrt.core.messages import Message, UserMessage
from agentrt.core.parts import Content, TextPart
from agentrt.filters.base import TurnRequest

__all__ = ["check_template", "fill", "question_of", "rephrase"]

PLACE: Final = re.compile(r"\{(\w+)\}")


def question_of(request: TurnRequest) -> UserMessage | None:
    """The user's last message of this turn that is all text.

    None if there is none, where a paused turn goes on, and in reruns: those words are
    a filter's.
    """
    if request.resume is not None or request.is_rerun:
        return None
    found = [
        message
        for message in request.messages
        if isinstance(message, UserMessage) and _is_text(message.content)
    ]
    asked = found[-1] if found else None
    return asked if asked is not None and asked.text.strip() else None


def rephrase(
    request: ChatRequest, message_id: str, template: str, **known: str
) -> ChatRequest:
    """The request with `template` in place of one message's words.

    `{question}` in it becomes those words, which may be an outer filter's by now.
    """
    messages: list[Message] = []
    for message in request.messages:
        if message.id == message_id and isinstance(message, UserMessage):
            text = fill(template, {"question": message.text, **known})
            messages.append(evolve(message, content=text))
        else:
            messages.append(message)
    return evolve(request, messages=messages)


def fill(template: str, known: Mapping[str, str]) -> str:
    """The template with what is known in its `{places}`; other braces stay."""
    return PLACE.sub(lambda place: known.get(place[1], place[0]), template)


def check_template(template: str, needed: Collection[str]) -> None:
    """Check that the template has each place.

    Raises:
        ValueError: one is missing.
    """
    for name in needed:
        if f"{{{name}}}" not in template:
            raise ValueError(
                f"the template {template[:40]!r} has no place for the {name}: "
                f"write {{{name}}} where it belongs"
            )


def _is_text(content: Content) -> bool:
    return isinstance(content, str) or all(isinstance(p, TextPart) for p in content)
