"""Logging filters: what was asked and answered, how long it took, how it failed.

What people and tools say is written at the chosen level and at no other: a failure is
a warning without their words, which follow at the level. Texts are quoted, so that a
line stays a line whatever is in it. Of other objects there is only what the preview
shows of their text.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import trio
from attrs import field, frozen

from agentrt.core.chat import ChatResponse
from agentrt.core.context import Context
from agentrt.core.errors import describe
from agentrt.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    role_of,
    text_of_value,
)
from agentrt.core.parts import Content, FilePart, text_of
from agentrt.filters.base import Call, ChatCall, Filter, Hook, ToolUse, hook
from agentrt.scopes import only_cancelled

__all__ = ["chat_logging_filter", "tool_logging_filter"]

PREVIEW: Final = 200

Words: TypeAlias = Callable[[], str]
"""Made only if somebody reads them."""


def tool_logging_filter(
    logger: logging.Logger | None = None,
    level: int | str = logging.INFO,
    *,
    preview: int | None = PREVIEW,
) -> Filter:
    """Log each tool call: its arguments, its result, how long it took.

    `preview` is how many characters of each text are written; None writes all. A call
    that failed is also a warning (at `level`, if that is higher), with no words of it.
    Register it last to see what the tool itself did, first to see what the other
    filters made of it. The default logger is `agentrt.filters.logging`; records have
    `conversation_id`, `run_id` and `call_id`.

    Raises:
        ValueError: there is no such level, or the preview is below 0.
    """
    journal = _journal(logger, level, preview)

    def name(use: ToolUse) -> str:
        return f"call {use.request.call.id!r} of tool {use.request.name!r}"

    def asked(use: ToolUse) -> str:
        return journal.clip(text_of_value(use.request.call.arguments))

    def answered(use: ToolUse) -> str:
        return journal.clip(_text(use.response.content))

    def failure(use: ToolUse) -> str | None:
        return (use.response.failure or "semantic") if use.response.is_error else None

    described = _Described(name=name, asked=asked, answered=answered, failure=failure)
    return Filter(name="tool_logging", tool=_logging_hook(journal, described))


def chat_logging_filter(
    logger: logging.Logger | None = None,
    level: int | str = logging.INFO,
    *,
    preview: int | None = PREVIEW,
) -> Filter:
    """Log each model call: what is new in it, the answer, tokens, how long it took.

    `preview` is how many characters of each text are written; None writes all. What is
    new is what came after the model's last message; system prompts and options are not
    logged. A call that failed is also a warning (at `level`, if that is higher), with
    no words of it. Register it last to see what the model gets. The default logger is
    `agentrt.filters.logging`; records have `conversation_id` and `run_id`.

    Raises:
        ValueError: there is no such level, or the preview is below 0.
    """
    journal = _journal(logger, level, preview)

    def asked(call: ChatCall) -> str:
        messages = call.request.messages
        new = [
            f"{role_of(each)} {journal.clip(_text(each.content))}"
            for each in _since_last_answer(messages)
            if not isinstance(each, SystemMessage)
        ]
        counts = f"{len(messages)} messages, {len(call.request.tools)} tools"
        return "; ".join([counts, *new])

    def answered(call: ChatCall) -> str:
        message = call.response.message
        calls = [f"calls {each.name} {_arguments(each)}" for each in message.tool_calls]
        return "; ".join([_counts(call.response), journal.clip(message.text), *calls])

    def _arguments(call: ToolCall) -> str:
        raw = call.invalid_arguments
        return journal.clip(text_of_value(call.arguments) if raw is None else raw)

    described = _Described(name=lambda call: "model", asked=asked, answered=answered)
    return Filter(name="chat_logging", chat=_logging_hook(journal, described))


@frozen(kw_only=True)
class _Described:
    """How one kind of call reads."""

    name: Callable[[Any], str]
    asked: Callable[[Any], str]
    answered: Callable[[Any], str]
    failure: Callable[[Any], str | None] = field(default=lambda call: None)
    """The kind of failure that the response is; None if it is none."""


@frozen(kw_only=True)
class _Journal:
    """Writes lines about calls to one logger."""

    logger: logging.Logger
    level: int
    preview: int | None

    def write(self, context: Context, what: str, words: Words | None = None) -> None:
        """A line at the chosen level, with words that need not be made otherwise."""
        if self.logger.isEnabledFor(self.level):
            text = what if words is None else f"{what}: {words()}"
            self._log(self.level, context, text)

    def fail(self, context: Context, what: str, kind: str, words: Words) -> None:
        """A warning that names the failure, and its words at the chosen level."""
        self._log(max(self.level, logging.WARNING), context, f"{what} ({kind})")
        self.write(context, what, words)

    def clip(self, text: str) -> str:
        """The text in quotes, as far as the preview allows."""
        if self.preview is None or len(text) <= self.preview:
            return repr(text)
        return f"{text[: self.preview]!r}... of {len(text)} characters"

    def _log(self, level: int, context: Context, text: str) -> None:
        known = {
            "conversation_id": context.conversation_id,
            "run_id": context.run_id,
            "call_id": context.call_id,
        }
        self.logger.log(level, "%r: %s", context.conversation_id, text, extra=known)


def _journal(
    logger: logging.Logger | None, level: int | str, preview: int | None
) -> _Journal:
    names = logging.getLevelNamesMapping()
    number = names.get(level) if isinstance(level, str) else level
    if number is None:
        known = ", ".join(names)
        raise ValueError(f"level is {level!r}, expected a number or one of {known}")
    if preview is not None and preview < 0:
        raise ValueError(
            f"preview is {preview}, expected 0 or more characters, or None for all"
        )
    logger = logger or logging.getLogger(__name__)
    return _Journal(logger=logger, level=number, preview=preview)


def _logging_hook(journal: _Journal, described: _Described) -> Hook[Any]:
    @hook
    async def log(call: Call[Any, Any]) -> AsyncIterator[None]:
        name, context = described.name(call), call.context
        journal.write(context, f"{name} asked", lambda: described.asked(call))
        started = trio.current_time()
        try:
            yield
        except BaseException as error:
            took = _since(started)
            if only_cancelled(error):
                journal.write(context, f"{name} was cancelled after {took}")
            else:
                kind = type(error).__name__
                said = partial(journal.clip, describe(error))
                journal.fail(context, f"{name} failed in {took}", kind, said)
            raise
        took = _since(started)
        failure = described.failure(call)
        said = partial(described.answered, call)
        if failure is None:
            journal.write(context, f"{name} answered in {took}", said)
        else:
            journal.fail(context, f"{name} failed in {took}", failure, said)

    return log


def _since(started: float) -> str:
    return f"{trio.current_time() - started:.3f} s"


def _since_last_answer(messages: Sequence[Message]) -> Sequence[Message]:
    for place in range(len(messages), 0, -1):
        if isinstance(messages[place - 1], AssistantMessage):
            return messages[place:]
    return messages


def _text(content: Content) -> str:
    """The words, and of files their types."""
    if isinstance(content, str):
        return content
    files = [f"[{part.media_type}]" for part in content if isinstance(part, FilePart)]
    return " ".join([text_of(content), *files])


def _counts(response: ChatResponse) -> str:
    model = repr(response.model) if response.model else "a filter"
    usage = response.usage
    counts = [] if usage is None else [f"{usage.total_tokens} tokens"]
    reason = [] if response.finish_reason is None else [str(response.finish_reason)]
    return ", ".join([model, *reason, *counts])
