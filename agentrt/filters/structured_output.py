"""The structured output filter: answers in JSON, checked, as values of your classes."""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from agentrt.core.chat import OutputSchema
from agentrt.core.converter import check_type, structure
from agentrt.core.errors import ToolDefinitionError
from agentrt.core.json_text import load_json
from agentrt.core.outcomes import TurnCompleted
from agentrt.filters.asking import Retries, ask_until_fine
from agentrt.filters.base import ChatCall, Filter, TurnCall, hook
from agentrt.tools.arguments import SchemaChecker, schema_fault
from agentrt.tools.signature import annotation_schema

__all__ = ["structured_output_filter"]

TELL: Final = """\
Give your final answer as JSON that fits this JSON Schema, and nothing beside it:
{schema}"""

FENCE: Final = "```"
OPENING: Final = re.compile(FENCE + r"[\w+-]*[ \t]*\r?\n")
"""Of a fenced block of Markdown. No JSON has one: its texts have no line breaks."""


def structured_output_filter(
    form: Any,
    *,
    max_retries: int = 2,
    must_pass: bool = False,
    native: bool = True,
    strict: bool = False,
) -> Filter:
    """Make the model answer in JSON of one form; `outcome.output` is the value.

    `form` is a JSON Schema, and the output then what JSON makes of it; or a type (an
    attrs class, a dataclass, a TypedDict, `list[Film]`, an Enum, ...), and the output a
    value of it. What the class itself refuses is a fault too.

    The model is told the schema in the system prompt. With `native` the vendor is told
    it as well, where it has a way and the schema is of an object; `strict` makes it
    refuse anything else, and is for schemas that vendors take so: each object closed,
    all properties required.

    A fence of Markdown around the JSON is taken off. Nothing is coerced: a truth value
    is no integer, a number in quotes no number; what the schema does not name is let
    be. All faults go back to the model, each with its JSON path, and it is asked again
    up to `max_retries` times (0 to 3). If the last answer still has faults the outcome
    has its text, and `output` is None; with `must_pass` the turn fails, with code
    `invalid_answer`. A turn that a filter stopped, that paused or that failed is let
    be. The history keeps every answer and what was asked.

    Raises:
        ValueError: the schema is invalid, or `max_retries` is out of range.
        TypeError: the type has no JSON form.
    """
    reader = _reader(form)
    retries = Retries(max_retries=max_retries, must_pass=must_pass)
    told = TELL.format(schema=json.dumps(dict(reader.schema), ensure_ascii=False))
    of_object = reader.schema.get("type") == "object"
    output_schema = OutputSchema(name=_name(form), schema=reader.schema, strict=strict)

    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        yield
        output = None

        async def faults_of(answer: TurnCompleted) -> Sequence[str]:
            nonlocal output
            output, faults = reader.read(answer.text)
            return faults

        await ask_until_fine(call, faults_of, retries)
        if output is not None and isinstance(call.response, TurnCompleted):
            call.response = evolve(call.response, output=output)

    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        request = call.request
        system = f"{request.system}\n\n{told}" if request.system else told
        call.request = evolve(request, system=system)
        if native and of_object:
            call.request = evolve(call.request, output_schema=output_schema)
        yield

    return Filter(name="structured_output", turn=turn, chat=chat)


@frozen(kw_only=True)
class _Reader:
    """Makes an output of a text."""

    schema: Mapping[str, Any]
    checker: SchemaChecker
    type_: Any
    """What the output is to be; None leaves it as JSON made it."""

    def read(self, text: str) -> tuple[Any, Sequence[str]]:
        """The output; or None, and why."""
        if not text.strip():
            return None, ("it is empty, expected JSON",)
        try:
            value = _load(text)
        except ValueError as error:
            return None, (f"it is no JSON: {error}",)
        faults = self.checker.faults(value)
        if faults:
            return None, faults
        if self.type_ is None:
            return value, ()
        try:
            return structure(value, self.type_), ()
        except ValueError as error:
            return None, (str(error),)


def _reader(form: Any) -> _Reader:
    if isinstance(form, Mapping):
        fault = schema_fault(form, root=None)
        if fault is not None:
            raise ValueError(f"the form of the output cannot work: {fault}")
        return _Reader(schema=form, checker=SchemaChecker(form), type_=None)
    try:
        schema = annotation_schema(form, "the form of the output")
    except ToolDefinitionError as error:
        raise TypeError(str(error)) from None
    check_type(form)
    return _Reader(schema=schema, checker=SchemaChecker(schema), type_=form)


def _name(form: Any) -> str:
    """A name that vendors take."""
    given = form.get("title") if isinstance(form, Mapping) else None
    given = given or getattr(form, "__name__", "")
    return re.sub(r"[^a-zA-Z0-9_-]", "_", str(given))[:64] or "output"


def _load(text: str) -> Any:
    """The JSON in an answer: all of it, or else what stands in a fence."""
    failure: ValueError | None = None
    for candidate in _candidates(text):
        try:
            return load_json(candidate)
        except ValueError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _candidates(text: str) -> Iterator[str]:
    """Texts that may be the JSON; the likeliest first, as its fault is told."""
    opening = OPENING.search(text)
    if opening is not None:
        fenced = text[opening.end() :]
        yield fenced.partition(FENCE)[0]
        yield fenced.rpartition(FENCE)[0]  # the JSON may hold fences itself
    yield text
