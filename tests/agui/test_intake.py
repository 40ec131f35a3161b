"""What clients send: taken when it is clear, refused with its path when it is not."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agui import encode_messages
from agentrt.agui.intake import (
    MAX_ID,
    dialect_of,
    read_decision,
    read_run_input,
)
from agentrt.core.errors import InputError
from agentrt.core.messages import UserMessage
from agentrt.core.outcomes import Approve, Deny, Reply, Retry
from agentrt.core.parts import FilePart, TextPart
from agentrt.testing import json_objects, json_values, texts


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"id": "u1", "role": "user", "content": content, **more}


def wanted(**members: Any) -> dict[str, Any]:
    return {"threadId": "t", "runId": "r", "messages": [user("hi")], **members}


def test_a_request_as_a_client_sends_it() -> None:
    read = read_run_input(
        wanted(
            protocolVersion="1.0",
            state={},
            tools=[],
            context=[],
            forwardedProps={},
            messages=[
                user("first", id="u0"),
                {"id": "m0", "role": "assistant", "content": "answer"},
                user("second", id="u1"),
                user("third", id="u2"),
            ],
        )
    )
    assert (read.conversation_id, read.label, read.dialect) == ("t", "r", "1.0")
    assert read.answers is None
    said = [(message.id, message.content) for message in read.messages]
    assert said == [("u1", "second"), ("u2", "third")]  # the rest is in the history


def test_a_message_without_an_id_gets_one() -> None:
    message = {"role": "user", "content": "hi"}
    (read,) = read_run_input(wanted(messages=[message])).messages
    (again,) = read_run_input(wanted(messages=[message])).messages
    assert read.id
    assert read.id != again.id


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        (None, "0.0"),
        ("", "0.0"),
        ("0.0.59", "0.0"),
        ("1.0", "1.0"),
        ("1", "1.0"),
        ("2.3", "1.0"),
        ("v1", "0.0"),
        (1, "0.0"),
    ],
)
def test_only_a_client_that_names_its_version_gets_the_new_dialect(
    version: Any, dialect: str
) -> None:
    assert dialect_of(version) == dialect


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (None, "$ is None"),
        ([], "$ is []"),
        ({"messages": [user("hi")]}, "$.threadId is None"),
        (wanted(threadId=""), "$.threadId is ''"),
        (wanted(threadId=7), "$.threadId is 7"),
        (wanted(threadId="x" * (MAX_ID + 1)), "$.threadId"),
        (wanted(runId=["r"]), "$.runId is ['r']"),
        (wanted(messages={}), "$.messages is {}"),
        (wanted(messages=[]), "$.messages ends with no user message"),
        (
            wanted(messages=[user("hi"), {"role": "assistant", "content": "ho"}]),
            "$.messages ends with no user message",
        ),
        (wanted(messages=["hi"]), "$.messages[0] is 'hi'"),
        (wanted(messages=[user("hi", id=7)]), "$.messages[0].id is 7"),
        (wanted(messages=[user(None)]), "$.messages[0].content is None"),
        (wanted(messages=[user(["hi"])]), "$.messages[0].content[0] is 'hi'"),
        (
            wanted(messages=[user([{"type": "text"}])]),
            "$.messages[0].content[0].text is None",
        ),
        (
            wanted(messages=[user([{"type": "image", "source": "there"}])]),
            "$.messages[0].content[0].source is 'there'",
        ),
        (
            wanted(messages=[user([{"type": "image", "source": {"type": "data"}}])]),
            "$.messages[0].content[0] is ",
        ),
        (
            wanted(
                messages=[
                    user(
                        [{"type": "image", "source": {"type": "data", "value": "aGk="}}]
                    )
                ]
            ),
            "a mimeType",
        ),
        (wanted(resume={}), "$.resume is {}"),
        (wanted(resume=["yes"]), "$.resume[0] is 'yes'"),
        (wanted(resume=[{}]), "$.resume[0].interruptId is None"),
        (
            wanted(resume=[{"interruptId": "a"}, {"interruptId": "a"}]),
            "$.resume[1].interruptId 'a' is answered twice",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(InputError) as refused:
        read_run_input(value)
    assert path in str(refused.value)


def test_a_refusal_is_short_however_long_the_value_is() -> None:
    with pytest.raises(InputError) as refused:
        read_run_input(wanted(messages="x" * 100_000))
    assert len(str(refused.value)) < 200


@given(json_values() | st.builds(wanted, messages=json_values(), resume=json_values()))
def test_nothing_that_is_json_is_worse_than_refused(value: Any) -> None:
    with suppress(InputError):
        read_run_input(value)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "hi"}, TextPart(text="hi")),
        (
            {
                "type": "image",
                "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"},
                "metadata": {"filename": "a.png"},
            },
            FilePart(media_type="image/png", data="aGk=", filename="a.png"),
        ),
        (
            {
                "type": "document",
                "source": {"type": "url", "value": "https://files.example/f"},
            },
            FilePart(media_type="document/*", url="https://files.example/f"),
        ),
        (
            {
                "type": "binary",
                "mimeType": "application/pdf",
                "data": "aGk=",
                "filename": "a.pdf",
            },
            FilePart(media_type="application/pdf", data="aGk=", filename="a.pdf"),
        ),
        (
            {
                "type": "binary",
                "mimeType": "image/png",
                "url": "https://files.example/f",
            },
            FilePart(media_type="image/png", url="https://files.example/f"),
        ),
    ],
    ids=["text", "data", "url without a type", "binary data", "binary url"],
)
def test_parts_of_every_generation(part: Any, expected: Any) -> None:
    (message,) = read_run_input(wanted(messages=[user([part])])).messages
    assert message.content == (expected,)


@given(
    st.lists(
        st.builds(TextPart, text=texts())
        | st.builds(
            FilePart,
            media_type=st.sampled_from(["image/png", "audio/wav", "application/pdf"]),
            data=st.sampled_from(["aGk=", "AAAA"]),
            filename=st.none() | texts(min_size=1),
        )
        | st.builds(
            FilePart, media_type=st.just("video/mp4"), url=st.just("https://f.example")
        ),
        max_size=4,
    ).map(tuple)
)
def test_what_goes_out_comes_back(parts: Any) -> None:
    message = UserMessage(id="u1", content=parts)
    (sent,) = encode_messages([message], "1.0")
    assert read_run_input(wanted(messages=[sent])).messages == (message,)


def test_an_answer_is_a_resume_and_no_new_message() -> None:
    read = read_run_input(
        wanted(
            resume=[
                {
                    "interruptId": "a",
                    "status": "resolved",
                    "payload": {"approved": True},
                },
                {"interruptId": "b", "status": "cancelled"},
            ]
        )
    )
    assert read.messages == ()
    assert read.answers is not None
    assert read.answers["a"] == Approve()
    assert isinstance(read.answers["b"], Deny)


@pytest.mark.parametrize(
    ("payload", "decision"),
    [
        ({"approved": True}, Approve()),
        ({"decision": "approve"}, Approve()),
        ({"decision": "approved", "approved": True}, Approve()),
        ({"approved": True, "editedArgs": {"a": 2}}, Approve(arguments={"a": 2})),
        ({"approved": True, "args": {"a": 2}}, Approve(arguments={"a": 2})),
        ({"approved": True, "editedArgs": {}}, Approve(arguments={})),
        ({"approved": False, "reason": "too late"}, Deny(reason="too late")),
        ({"decision": "deny", "message": "no"}, Deny(reason="no")),
        ({"decision": "reply", "message": "ask Ann"}, Reply(content="ask Ann")),
        ({"decision": "retry"}, Retry()),
        ({"decision": "retry", "approved": False}, Deny()),
    ],
)
def test_an_answer_that_is_clear(payload: Any, decision: Any) -> None:
    assert read_decision("resolved", payload) == decision


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "yes",
        True,
        [],
        {},
        {"approved": "true"},
        {"approved": 1},
        {"approved": None},
        {"decision": "deny", "approved": True},
        {"decision": "approve", "approved": False},
        {"decision": ["approve"]},
        {"decision": "reply"},
        {"decision": "Approve "},
        {"approved": True, "editedArgs": "rm"},
        {"approved": True, "editedArgs": [1]},
    ],
)
def test_whatever_is_not_clearly_an_approval_denies(payload: Any) -> None:
    assert isinstance(read_decision("resolved", payload), Deny)


@given(status=json_values(), payload=json_values() | json_objects())
def test_nothing_but_a_resolved_question_approves(status: Any, payload: Any) -> None:
    decision = read_decision(status, payload)
    if isinstance(decision, Approve):
        assert status == "resolved"


@pytest.mark.parametrize("status", [None, "", "cancelled", "RESOLVED", 1, ["resolved"]])
def test_a_question_that_was_closed_is_denied(status: Any) -> None:
    assert isinstance(read_decision(status, {"approved": True}), Deny)
