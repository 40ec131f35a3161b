"""Structured output: values of the asked form, or the last text after all retries."""

import dataclasses
import datetime
import enum
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from agentrt.agent.agent import Agent
from agentrt.core.chat import OutputSchema
from agentrt.core.outcomes import (
    Reply,
    TurnCompleted,
    TurnFailed,
    TurnOutcome,
    TurnPaused,
)
from agentrt.filters.base import Filter
from agentrt.filters.structured_output import structured_output_filter
from agentrt.testing import ScriptedModel, call, json_values, trio_property
from agentrt.tools.base import Tool


class Genre(enum.Enum):
    NOIR = "noir"
    WESTERN = "western"


@frozen
class Film:
    """A film.

    Args:
        year: When it came out.
    """

    title: str
    year: int
    genre: Genre | None = None

    def __attrs_post_init__(self) -> None:
        if self.year < 1888:
            raise ValueError("there were no films before 1888")


@dataclasses.dataclass
class Seat:
    row: int
    kind: Literal["stalls", "box"] = "stalls"


class Address(TypedDict):
    street: str
    floor: NotRequired[int]


FILM: Mapping[str, Any] = {
    "title": "film list",
    "type": "object",
    "properties": {
        "films": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "year": {"type": "integer"}},
                "required": ["name"],
            },
        },
    },
    "required": ["films"],
}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("agentrt").setLevel(logging.CRITICAL)


def agent(made: Filter, *steps: Any, **more: Any) -> Agent:
    return Agent(model=ScriptedModel(steps), filters=[made], **more)


async def ask(form: Any, *answers: str, **options: Any) -> TurnOutcome:
    return await agent(structured_output_filter(form, **options), *answers).run("go")


async def output_of(form: Any, text: str) -> Any:
    outcome = await ask(form, text, max_retries=0)
    assert isinstance(outcome, TurnCompleted)
    return outcome.output


async def faults_of(form: Any, text: str) -> Sequence[str]:
    """What the model is told of an answer with faults."""
    made = agent(structured_output_filter(form, max_retries=1), text, text)
    await made.run("go", conversation_id="c")
    asked = (await made.history("c"))[2].text
    return [line.removeprefix("- ") for line in asked.splitlines()[1:-1]]


@pytest.mark.parametrize(
    ("form", "text", "output"),
    [
        (Film, '{"title": "M", "year": 1931}', Film("M", 1931)),
        (
            Film,
            '{"title": "M", "year": 1931, "genre": "noir", "director": "Lang"}',
            Film("M", 1931, Genre.NOIR),
        ),
        (list[Film], '[{"title": "M", "year": 1931}]', [Film("M", 1931)]),
        (Seat, '{"row": 3}', Seat(3)),
        (Address, '{"street": "Elm", "floor": 2}', {"street": "Elm", "floor": 2}),
        (Genre, '"western"', Genre.WESTERN),
        (datetime.date, '"1931-05-11"', datetime.date(1931, 5, 11)),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (int, "3", 3),
        (FILM, '{"films": [{"name": "M", "more": 1}]}',
         {"films": [{"name": "M", "more": 1}]}),
    ],
)  # fmt: skip
async def test_the_output_is_a_value_of_the_asked_form(
    form: Any, text: str, output: Any
) -> None:
    assert await output_of(form, text) == output


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"title": "M", "year": 1931}\n```',
        '```\n{"title": "M", "year": 1931}```',
        '  ```JSON  \r\n{"title": "M", "year": 1931}\r\n```  ',
        'Here it is:\n```json\n{"title": "M", "year": 1931}\n```\nEnjoy!',
        '```json\n{"title": "M", "year": 1931}',
        '\n{"title": "M", "year": 1931}\n',
    ],
)
async def test_a_fence_around_the_json_is_taken_off(text: str) -> None:
    """B69"""
    assert await output_of(Film, text) == Film("M", 1931)


@given(json_values(), st.sampled_from([None, 2]), st.sampled_from(["", "json"]))
@trio_property
async def test_any_json_is_read_from_a_fence_as_without(
    value: Any, indent: int | None, language: str
) -> None:
    for each in (value, {"code": "```py\nx\n```", "value": value}):
        text = json.dumps(each, indent=indent, ensure_ascii=False)
        fenced = f"Well:\n```{language}\n{text}\n```\n"
        assert await output_of({}, fenced) == await output_of({}, text) == each


@pytest.mark.parametrize(
    ("form", "text", "faults"),
    [
        (Film, " \n", ["it is empty, expected JSON"]),
        (Film, "M.", ["it is no JSON: Expecting value: line 1 column 1 (char 0)"]),
        (
            Film,
            "So:\n```json\n{'title': 1}\n```",
            ["it is no JSON: Expecting property name enclosed in double quotes: "
             "line 1 column 2 (char 1)"],
        ),
        (Film, '{"year": NaN}', ["it is no JSON: NaN is no JSON"]),
        (
            FILM,
            '{"films": [{"name": "M"}, {"year": true}, {"name": 1, "year": "x"}]}',
            [
                "$.films[1]: 'name' is missing",
                "$.films[1].year is true, expected an integer",
                "$.films[2].name is 1, expected a text",
                '$.films[2].year is "x", expected an integer',
            ],
        ),
        (
            Film,
            '{"title": "M", "year": "1931"}',
            ['$.year is "1931", expected an integer'],
        ),
        (
            list[Film],
            '[{"title": "M", "year": 1}]',
            ["there were no films before 1888 @ $[0]"],
        ),
        (datetime.date, '"today"', ["Invalid isoformat string: 'today'"]),
    ],
)  # fmt: skip
async def test_every_fault_is_told_in_words_and_with_its_path(
    form: Any, text: str, faults: Sequence[str]
) -> None:
    """B69: a truth value is no integer; and not only the first fault is told."""
    assert await faults_of(form, text) == faults


async def test_an_answer_that_was_mended_is_the_outcome() -> None:
    made = agent(structured_output_filter(int), "three", "3")
    outcome = await made.run("go", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    assert (outcome.text, outcome.output) == ("3", 3)
    asked = [message.text for message in await made.history("c")]
    assert asked[:2] == ["go", "three"]
    assert asked[2].startswith("This message is from the system, not from the user.")


async def test_when_retries_are_used_up_the_last_text_is_there_without_output() -> None:
    """B69"""
    outcome = await ask(int, "1.5", "two", "three")
    assert isinstance(outcome, TurnCompleted)
    assert (outcome.text, outcome.output) == ("three", None)


async def test_an_output_that_must_be_there_fails_the_turn_instead() -> None:
    outcome = await ask(int, "x", "1.5", max_retries=1, must_pass=True)
    assert outcome == TurnFailed(
        message="the answer has faults: $ is 1.5, expected an integer",
        code="invalid_answer",
    )


async def test_a_pause_passes_and_the_answer_after_it_is_read() -> None:
    """B25, B26"""
    asks = Tool(name="ask")
    made = agent(structured_output_filter(int), call("ask"), "x", "3", tools=[asks])
    paused = await made.run("go", conversation_id="c")
    assert isinstance(paused, TurnPaused)
    assert isinstance(made.model, ScriptedModel)
    assert len(made.model.requests) == 1
    outcome = await made.resume("c", {paused.interrupts[0].id: Reply(content="yes")})
    assert isinstance(outcome, TurnCompleted)
    assert (outcome.output, len(made.model.requests)) == (3, 3)


async def test_the_model_and_its_vendor_are_told_the_form() -> None:
    made = agent(structured_output_filter(Film, strict=True), '{"title": 1}',
                 '{"title": "M", "year": 1931}', system="Be brief.")  # fmt: skip
    await made.run("go")
    assert isinstance(made.model, ScriptedModel)
    for request in made.model.requests:
        schema = {
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "year": {"type": "integer", "description": "When it came out."},
                "genre": {
                    "anyOf": [
                        {"type": "string", "enum": ["noir", "western"]},
                        {"type": "null"},
                    ]
                },
            },
            "required": ["title", "year"],
        }
        first, told = request.system.split("\n\n")
        assert first == "Be brief."
        assert json.loads(told.split("\n", 1)[1]) == schema
        assert request.output_schema == OutputSchema(
            name="Film", schema=schema, strict=True
        )


@pytest.mark.parametrize(
    ("form", "name"),
    [(FILM, "film_list"), ({"type": "object"}, "output"), (Address, "Address")],
)
async def test_the_form_has_a_name_that_vendors_take(form: Any, name: str) -> None:
    made = agent(structured_output_filter(form, max_retries=0), "x")
    await made.run("go")
    assert isinstance(made.model, ScriptedModel)
    told = made.model.requests[0].output_schema
    assert told is not None
    assert told.name == name


@pytest.mark.parametrize(
    ("form", "native"), [(Film, False), (int, True), (list[Film], True)]
)
async def test_a_vendor_is_told_only_of_objects_and_only_if_asked(
    form: Any, native: bool
) -> None:
    made = agent(structured_output_filter(form, max_retries=0, native=native), "x")
    await made.run("go")
    assert isinstance(made.model, ScriptedModel)
    assert made.model.requests[0].output_schema is None
    assert "JSON Schema" in made.model.requests[0].system


@given(st.lists(st.sampled_from(["1", "x", "", "true", "[1]"]), max_size=8),
       st.integers(0, 3), st.booleans())  # fmt: skip
@trio_property
async def test_it_asks_until_an_answer_fits_and_never_beyond_its_limit(
    answers: list[str], max_retries: int, must_pass: bool
) -> None:
    script = [*answers, *["x"] * 4]
    filters = structured_output_filter(
        int, max_retries=max_retries, must_pass=must_pass
    )
    made = agent(filters, *script)
    outcome = await made.run("go")
    first_good = next((n for n, text in enumerate(script) if text == "1"), 99)
    assert isinstance(made.model, ScriptedModel)
    assert len(made.model.requests) == min(first_good, max_retries) + 1
    if isinstance(outcome, TurnCompleted):
        assert (outcome.output == 1) == (first_good <= max_retries)
    else:
        assert isinstance(outcome, TurnFailed)
        assert must_pass
        assert first_good > max_retries


@given(json_values())
@trio_property
async def test_whatever_the_model_says_has_the_form_or_no_output(value: Any) -> None:
    output = await output_of(Film, json.dumps(value))
    assert output is None or isinstance(output, Film)


@pytest.mark.parametrize(
    ("form", "error", "words"),
    [
        ({"type": "text"}, ValueError, "the form of the output cannot work"),
        (bytes, TypeError, "the form of the output is <class 'bytes'>, which has no"),
        (list[Film] | Film, TypeError, "no value can be made of"),
    ],
)
def test_a_form_that_cannot_work_is_refused_at_once(
    form: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        structured_output_filter(form)


def test_a_limit_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="max_retries is 4, expected 0 to 3"):
        structured_output_filter(int, max_retries=4)
