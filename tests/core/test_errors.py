"""The tree of errors: listed, named apart, and truthful about what may be done."""

import inspect

import pytest

from agentrt.core import errors
from agentrt.core.errors import (
    AgentRTError,
    DeadlineError,
    MaxIterationsError,
    ModelError,
    SessionBusyError,
    SessionPausedError,
    ToolError,
    describe,
    public_words,
)
from agentrt.core.messages import ToolCall
from agentrt.core.outcomes import Interrupt

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, AgentRTError)
]


def test_the_docstring_lists_every_class_and_no_other() -> None:
    words = (errors.__doc__ or "").split()
    listed = [word for word in words if word.endswith("Error")]
    assert sorted(listed) == sorted(cls.__name__ for cls in CLASSES)
    assert sorted(errors.__all__) == sorted(
        [*listed, "deadline_of", "describe", "public_words"]
    )


def test_the_docstring_says_what_may_be_done_about_each_model_error() -> None:
    lines = (errors.__doc__ or "").splitlines()
    for cls in ModelError.__subclasses__():
        line = next(line for line in lines if f" {cls.__name__} " in line)
        assert ("switchable" in line) == cls.switchable
        if cls is not errors.EmptyCompletionError:
            assert ("retryable" in line) == cls.retryable


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in CLASSES]
    assert len(codes) == len(set(codes))


def test_all_are_caught_by_the_base_class() -> None:
    assert all(issubclass(cls, AgentRTError) for cls in CLASSES)


def test_the_end_of_a_turns_iterations_is_nothing_to_retry() -> None:
    """X2"""
    error = MaxIterationsError(3)
    assert not isinstance(error, ModelError)
    assert "all its iterations (3)" in str(error)


def test_a_model_error_without_more_is_neither_retryable_nor_switchable() -> None:
    """B2"""
    error = ModelError("no")
    assert (error.retryable, error.switchable) == (False, False)


def test_a_deadline_says_which_it_was_and_what_it_cut() -> None:
    assert str(DeadlineError("turn", 2.5)) == "the turn deadline of 2.5 s fired"
    cut = DeadlineError("model", 1.0, cut="a call of a/b")
    assert str(cut) == "the model deadline of 1 s fired and cut a call of a/b"


def test_a_busy_session_says_what_runs() -> None:
    error = SessionBusyError("c", "r1")
    assert (error.conversation_id, error.run_id) == ("c", "r1")
    assert "is running 'r1'" in str(error)


def test_a_paused_session_says_what_waits() -> None:
    call = ToolCall(id="i1", name="delete")
    error = SessionPausedError("c", [Interrupt(id="i1", reason="?", call=call)])
    assert "answer 'i1'" in str(error)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolError("went wrong"), "went wrong"),
        (ValueError(), "ValueError"),
        (ExceptionGroup("group", [ValueError("first"), KeyError("x")]), "first"),
        (
            BaseExceptionGroup("g", [ExceptionGroup("h", [TimeoutError()])]),
            "TimeoutError",
        ),
    ],
)
def test_an_error_is_never_without_words(error: BaseException, words: str) -> None:
    """B4"""
    assert describe(error) == words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolError("no such file"), "no such file"),
        (ToolError(""), "ToolError"),
        (ValueError("postgres://me:secret@db"), "ValueError"),
        (ExceptionGroup("secret", [OSError("secret")]), "OSError"),
        (ExceptionGroup("secret", [ToolError("gone")]), "gone"),
    ],
)
def test_only_words_of_ours_are_for_readers(error: BaseException, words: str) -> None:
    assert public_words(error) == words
