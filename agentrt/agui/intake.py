"""AG-UI in: the JSON of a run request to values, and what it asks for. Pure.

The server's history is the truth: of the messages only what the user said last is
taken. An answer to an interrupt approves only if it says so outright; all else denies.
What has the wrong form is refused with its path, and nothing happens.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from agentrt.agui.codec import PROTOCOL_VERSION, Dialect
from agentrt.core.errors import InputError
from agentrt.core.ids import new_id
from agentrt.core.messages import UserMessage
from agentrt.core.outcomes import Approve, Decision, Deny, Reply, Retry
from agentrt.core.parts import Content, FilePart, Part, TextPart

__all__ = [
    "RunInput",
    "dialect_of",
    "read_decision",
    "read_id",
    "read_run_input",
    "show",
]

MAX_ID: Final = 256
"""Characters of a thread's, run's or message's id."""


@frozen(kw_only=True)
class RunInput:
    """What a client asks for: a run with new messages, or a resume with answers."""

    conversation_id: str
    label: str = ""
    """The client's `runId`."""

    dialect: Dialect = "0.0"
    messages: Sequence[UserMessage] = ()
    answers: Mapping[str, Decision] | None = None
    """By interrupt id; None: this is no resume."""


def read_run_input(value: Any) -> RunInput:
    """What a `RunAgentInput` asks for.

    Raises:
        InputError: says which member is wrong, what it is, and what was expected.
    """
    if not isinstance(value, Mapping):
        raise InputError(f"$ is {show(value)}, expected an object")
    conversation_id = read_id(value, "threadId", required=True)
    label = read_id(value, "runId")
    messages = _list(value, "messages")
    resume = _list(value, "resume")
    dialect = dialect_of(value.get("protocolVersion"))
    if resume:
        return RunInput(
            conversation_id=conversation_id,
            label=label,
            dialect=dialect,
            answers=_read_answers(resume),
        )
    new = _new_messages(messages)
    if not new:
        raise InputError(
            "$.messages ends with no user message: a run needs something to answer, "
            "or $.resume with the answers to open interrupts"
        )
    return RunInput(
        conversation_id=conversation_id, label=label, dialect=dialect, messages=new
    )


def dialect_of(version: Any) -> Dialect:
    """The dialect for a client: only one of 1.0 or later names a version."""
    major = version.partition(".")[0] if isinstance(version, str) else ""
    return PROTOCOL_VERSION if major.isdigit() and int(major) >= 1 else "0.0"


def read_decision(status: Any, payload: Any) -> Decision:
    """What a person decided. Whatever is not clearly an approval is a denial."""
    if status != "resolved":
        return Deny(reason="the question was closed without an answer")
    if not isinstance(payload, Mapping):
        return Deny(reason="the answer did not say whether it approves")
    word, flag = payload.get("decision"), payload.get("approved")
    reason = payload.get("reason") or payload.get("message") or ""
    reason = reason if isinstance(reason, str) else ""
    if word == "reply" and flag is None and reason:
        return Reply(content=reason)
    if word == "retry" and flag is None:
        return Retry()
    said = [isinstance(word, str) and word in APPROVALS] if word is not None else []
    said += [flag is True] if flag is not None else []
    if not (said and all(said)):
        return Deny(reason=reason)
    given = [payload[key] for key in EDITS if payload.get(key) is not None]
    if not given:
        return Approve()
    if not isinstance(given[0], Mapping):
        return Deny(reason="the edited arguments were no object")
    return Approve(arguments=given[0])


APPROVALS: Final = frozenset({"approve", "approved"})
EDITS: Final = ("editedArgs", "args", "arguments")


def _read_answers(resume: Sequence[Any]) -> Mapping[str, Decision]:
    answers: dict[str, Decision] = {}
    for index, entry in enumerate(resume):
        path = f"$.resume[{index}]"
        if not isinstance(entry, Mapping):
            raise InputError(f"{path} is {show(entry)}, expected an object")
        id_ = entry.get("interruptId")
        if not isinstance(id_, str) or not id_:
            raise InputError(f"{path}.interruptId is {show(id_)}, expected a text")
        if id_ in answers:
            raise InputError(f"{path}.interruptId {id_!r} is answered twice")
        answers[id_] = read_decision(entry.get("status"), entry.get("payload"))
    return answers


def _new_messages(messages: Sequence[Any]) -> Sequence[UserMessage]:
    """What the user said after everything else."""
    new: list[UserMessage] = []
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        path = f"$.messages[{index}]"
        if not isinstance(message, Mapping):
            raise InputError(f"{path} is {show(message)}, expected an object")
        if message.get("role") != "user":
            break
        id_ = read_id(message, "id", path=path) or new_id()
        content = _content(message.get("content"), f"{path}.content")
        new.append(UserMessage(id=id_, content=content))
    return tuple(reversed(new))


def _content(value: Any, path: str) -> Content:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise InputError(f"{path} is {show(value)}, expected a text or parts")
    return tuple(_part(part, f"{path}[{i}]") for i, part in enumerate(value))


def _part(value: Any, path: str) -> Part:
    if not isinstance(value, Mapping):
        raise InputError(f"{path} is {show(value)}, expected a part")
    if value.get("type") == "text":
        text = value.get("text")
        if not isinstance(text, str):
            raise InputError(f"{path}.text is {show(text)}, expected a text")
        return TextPart(text=text)
    source = value.get("source", value)  # parts before 1.0 are their own source
    if not isinstance(source, Mapping):
        raise InputError(f"{path}.source is {show(source)}, expected an object")
    media_type = _first(source, ("mimeType", "mime_type", "mediaType"))
    location = _first(source, ("value", "url", "data"))
    is_url = source.get("type") == "url" or "url" in source
    if location is None or not (media_type or is_url):
        raise InputError(
            f"{path} is {show(value)}, expected a source with a value and a mimeType"
        )
    metadata = value.get("metadata")
    filename = metadata.get("filename") if isinstance(metadata, Mapping) else None
    filename = filename if isinstance(filename, str) else value.get("filename")
    return FilePart(
        media_type=media_type or f"{value.get('type', 'application')}/*",
        url=location if is_url else None,
        data=None if is_url else location,
        filename=filename if isinstance(filename, str) else None,
    )


def _first(source: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next(
        (v for key in keys if isinstance(v := source.get(key), str) and v), None
    )


def read_id(
    value: Mapping[str, Any], name: str, *, path: str = "$", required: bool = False
) -> str:
    """The id that `value` has under `name`; "" where it may be absent, and is.

    Raises:
        InputError: it is no text, or none of 1 to `MAX_ID` characters.
    """
    id_ = value.get(name)
    if id_ is None and not required:
        return ""
    if not isinstance(id_, str) or not (id_ or not required) or len(id_) > MAX_ID:
        raise InputError(
            f"{path}.{name} is {show(id_)}, expected a text of 1 to {MAX_ID} characters"
        )
    return id_


def _list(value: Mapping[str, Any], name: str) -> Sequence[Any]:
    items = value.get(name)
    if items is None:
        return ()
    if not isinstance(items, list):
        raise InputError(f"$.{name} is {show(items)}, expected a list")
    return items


def show(value: Any) -> str:
    """A value for an error's words: short, however long it is."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
