"""When the next model is asked, what it is shown, and what is told of it."""

import logging
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core import errors
from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    Delta,
    FallbackReport,
    TextDelta,
)
from agentrt.core.context import Context
from agentrt.core.errors import ModelError, NetworkError, ServerError
from agentrt.core.messages import AssistantMessage, Blocks
from agentrt.models.fallback import FallbackModel, LazyModel
from agentrt.models.function import FunctionModel
from agentrt.testing import Say, ScriptedModel, trio_property

CONTEXT = Context(conversation_id="c")
BLOCKS = AssistantMessage(id="m", blocks=Blocks(provider="a", format="f", data=[]))
REQUEST = ChatRequest(messages=[BLOCKS], options={"model": "x", "temperature": 1})


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


def model(ref: str, *steps: Any) -> ScriptedModel:
    return ScriptedModel(steps, ref)


@pytest.mark.parametrize("kind", ModelError.__subclasses__(), ids=lambda k: k.__name__)
async def test_the_error_decides_whether_the_next_is_asked(
    kind: type[ModelError],
) -> None:
    """B39"""
    stays = {errors.InvalidRequestError, errors.ContextOverflowError}
    second = model("b/two", "hi")
    chain = FallbackModel([model("a/one", kind("no")), second])
    if kind in stays:
        with pytest.raises(kind):
            await chain.call(REQUEST, CONTEXT)
        assert second.requests == []
    else:
        response = await chain.call(REQUEST, CONTEXT)
        assert response.fallback == FallbackReport(
            answered_by="b/two", failures=(("a/one", "no"),)
        )


async def test_an_error_that_is_not_a_models_is_not_hidden() -> None:
    def fail(request: ChatRequest) -> str:
        raise ValueError("bug")

    chain = FallbackModel([FunctionModel(fail), model("b/two", "hi")])
    with pytest.raises(ValueError, match="bug"):
        await chain.call(REQUEST, CONTEXT)


async def test_blocks_are_left_out_for_another_vendor_only() -> None:
    """B39, B7: and the model option for every other model."""
    same, other = model("a/two", ServerError("2")), model("b/three", "hi")
    first = model("a/one", ServerError("1"))
    await FallbackModel([first, same, other]).call(REQUEST, CONTEXT)
    bare = AssistantMessage(id="m")
    assert first.requests == [REQUEST]
    assert [(list(r.messages), r.options) for r in same.requests] == [
        ([BLOCKS], {"temperature": 1})
    ]
    assert [(list(r.messages), r.options) for r in other.requests] == [
        ([bare], {"temperature": 1})
    ]


async def test_the_first_model_answers_with_a_report_too() -> None:
    response = await FallbackModel([model("a/one", "hi")]).call(REQUEST, CONTEXT)
    assert response.fallback == FallbackReport(answered_by="a/one")


@define
class Maker:
    """Makes a model, or fails to; counts."""

    result: Any
    made: int = field(default=0, init=False)

    def __call__(self) -> Any:
        self.made += 1
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


async def test_a_lazy_model_is_made_when_needed_and_once() -> None:
    """B39"""
    maker = Maker(model("b/two", "one", "two"))
    first = model("a/one", "hi", ServerError("x"), ServerError("y"))
    chain = FallbackModel([first, LazyModel("b/two", maker)])
    await chain.call(REQUEST, CONTEXT)
    assert maker.made == 0
    texts = [(await chain.call(REQUEST, CONTEXT)).message.text for _ in range(2)]
    assert (texts, maker.made) == (["one", "two"], 1)


async def test_a_model_that_cannot_be_made_is_passed_over() -> None:
    """B39"""
    broken = LazyModel("a/one", Maker(ImportError("no such package")))
    chain = FallbackModel([broken, model("b/two", "hi")])
    assert chain.ref == "a/one"
    response = await chain.call(REQUEST, CONTEXT)
    assert response.fallback == FallbackReport(
        answered_by="b/two", failures=(("a/one", "no such package"),)
    )


async def test_when_none_can_answer_the_last_error_tells_of_all() -> None:
    last = NetworkError("down")
    chain = FallbackModel(
        [
            model("a/one", ServerError("busy")),
            LazyModel("b/two", Maker(ImportError("gone"))),
            model("c/three", last),
        ]
    )
    with pytest.raises(NetworkError) as caught:
        await chain.call(REQUEST, CONTEXT)
    assert caught.value is last
    assert last.__notes__ == [
        "models tried, in order: a/one: busy; b/two: gone; c/three: down"
    ]


async def test_a_last_model_that_cannot_be_made_raises_what_it_raised() -> None:
    chain = FallbackModel(
        [model("a/one", ServerError("busy")), LazyModel("b/two", Maker(KeyError("k")))]
    )
    with pytest.raises(KeyError):
        await chain.call(REQUEST, CONTEXT)


async def test_nobody_takes_over_once_a_delta_was_told() -> None:
    """U25"""
    told: list[Delta] = []
    second = model("b/two", "again")
    first = model("a/one", Say(text="begun", error=ServerError("broke")))
    chain = FallbackModel([first, second])
    with pytest.raises(ServerError):
        await chain.call(REQUEST, Context(conversation_id="c", on_delta=told.append))
    assert told == [TextDelta(text="begun")]
    assert second.requests == []


async def test_an_answer_that_nobody_heard_may_be_replaced() -> None:
    first = model("a/one", Say(text="begun", error=ServerError("broke")))
    response: ChatResponse = await FallbackModel([first, model("b/two", "again")]).call(
        REQUEST, CONTEXT
    )
    assert response.message.text == "again"


def test_a_chain_has_a_model() -> None:
    with pytest.raises(ValueError, match="at least one model"):
        FallbackModel([])


KINDS = [kind for kind in ModelError.__subclasses__() if kind is not ServerError]


@given(
    st.lists(st.sampled_from([None, *KINDS, ServerError]), min_size=1, max_size=5),
    st.integers(min_value=0, max_value=4),
)
@trio_property
async def test_the_report_equals_what_happened(
    ends: list[type[ModelError] | None], lazy: int
) -> None:
    """B39: whatever the models do, one of which is made when it is needed."""
    asked: list[str] = []

    def make(place: int) -> Any:
        kind = ends[place]

        def answer(request: ChatRequest) -> str:
            asked.append(ref(place))
            if kind is not None:
                raise kind(f"no {place}")
            return f"from {place}"

        return FunctionModel(answer, ref(place))

    models: list[Any] = [
        LazyModel(ref(place), partial(make, place)) if place == lazy else make(place)
        for place in range(len(ends))
    ]
    events: list[Any] = []
    context = Context(conversation_id="c", emit=events.append)
    chain = FallbackModel(models)
    if _answers(ends):
        response = await chain.call(ChatRequest(), context)
        assert response.fallback == FallbackReport(
            answered_by=asked[-1],
            failures=tuple((ref(n), f"no {n}") for n in range(len(asked) - 1)),
        )
    else:
        with pytest.raises(ModelError) as caught:
            await chain.call(ChatRequest(), context)
        assert str(caught.value) == f"no {len(asked) - 1}"
        assert caught.value.fallback == FallbackReport(
            answered_by=None,
            failures=tuple((ref(n), f"no {n}") for n in range(len(asked))),
        )
        notes = getattr(caught.value, "__notes__", [])
        assert all(who in note for note in notes for who in asked)
        assert bool(notes) == (len(asked) > 1)
    told = [(event.from_ref, event.to_ref) for event in events]
    assert told == list(pairwise(asked))
    assert asked == [ref(place) for place in range(_last(ends) + 1)]


def ref(place: int) -> str:
    return f"v{place}/m"


def _answers(ends: list[type[ModelError] | None]) -> bool:
    return ends[_last(ends)] is None


def _last(ends: list[type[ModelError] | None]) -> int:
    """Where the chain must stop: at an answer, or at what no other model helps."""
    for place, kind in enumerate(ends):
        if kind is None or not kind.switchable:
            return place
    return len(ends) - 1
