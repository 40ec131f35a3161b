"""`OfflineModel`: answers by rules, streams and calls tools, without key or network.

Good enough to show everything that a runtime does: it talks, thinks aloud, asks for
tools one by one and several at once, for one that needs approval, takes its time, and
fails on request. The rules are a table: what the user's words match decides.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import trio
from attrs import field, frozen

from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    Delta,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from agentrt.core.context import Context
from agentrt.core.errors import ServerError
from agentrt.core.ids import new_id
from agentrt.core.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    last_user_message,
)

__all__ = ["OfflineModel", "open_offline"]

TOKEN_SECONDS: Final = 0.02


@frozen(kw_only=True)
class Plan:
    """What the model is going to say and ask for."""

    text: str = ""
    reasoning: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Tool names and arguments."""

    pace: float = 1.0
    """Times the usual seconds for each token."""

    fails: bool = False
    """Break off with a server error after the text."""


@frozen(kw_only=True)
class OfflineModel:
    """A `ChatModel` that follows rules; deterministic."""

    model_id: str = "demo"
    token_seconds: float = TOKEN_SECONDS
    """Between two tokens of a stream."""

    sleep: Callable[[float], Any] = field(default=trio.sleep, repr=False)

    @property
    def ref(self) -> str:
        return f"offline/{self.model_id}"

    async def call(self, request: ChatRequest, context: Context) -> ChatResponse:
        await trio.lowlevel.checkpoint()
        message_id = context.message_id or new_id()
        plan = _offered(_plan(request), request)
        calls = tuple(
            ToolCall(id=f"{message_id}-{index}", name=name, arguments=arguments)
            for index, (name, arguments) in enumerate(plan.calls)
        )
        if context.on_delta is not None:
            for delta in _deltas(plan, calls):
                await self.sleep(self.token_seconds * plan.pace)
                context.on_delta(delta)
        if plan.fails:
            raise ServerError("the offline model was asked to fail", provider="offline")
        message = AssistantMessage(
            id=message_id,
            content=plan.text,
            reasoning=plan.reasoning,
            tool_calls=calls,
        )
        return ChatResponse(
            message=message,
            finish_reason=FinishReason.TOOL_USE if calls else FinishReason.STOP,
            usage=self._usage(request, plan),
            provider="offline",
            model=self.model_id,
        )

    def _usage(self, request: ChatRequest, plan: Plan) -> Usage:
        """Words, counted as tokens."""
        asked = sum(len(message.text.split()) for message in request.messages)
        thought = len(plan.reasoning.split())
        said = len(plan.text.split()) + thought + 8 * len(plan.calls)
        return Usage(
            provider="offline",
            model=self.model_id,
            input_tokens=asked,
            output_tokens=said,
            total_tokens=asked + said,
            reasoning_tokens=thought or None,
        )


@asynccontextmanager
async def open_offline(model_id: str) -> AsyncIterator[OfflineModel]:
    """The model for `offline/…`; there is nothing to open."""
    await trio.lowlevel.checkpoint()
    yield OfflineModel(model_id=model_id)


def _plan(request: ChatRequest) -> Plan:
    """What to do now: sum up results that just came, or follow the rule that fits."""
    results = _latest_results(request)
    if results:
        return _sum_up(results)
    user = last_user_message(request.messages)
    said = "" if user is None else user.text.strip()
    for pattern, rule in RULES:
        match = pattern.search(said)
        if match is not None:
            return rule(match)
    return Plan(text=ECHO.format(said=said or "nothing"))


def _latest_results(request: ChatRequest) -> Sequence[ToolMessage]:
    results: list[ToolMessage] = []
    for message in reversed(request.messages):
        if not isinstance(message, ToolMessage):
            break
        results.insert(0, message)
    return results


def _sum_up(results: Sequence[ToolMessage]) -> Plan:
    good = [result.text for result in results if not result.is_error]
    bad = [result for result in results if result.is_error]
    lines = [*good, *(f"`{each.name}` did not work out: {each.text}" for each in bad)]
    if len(lines) == 1:
        return Plan(text=lines[0])
    return Plan(text="Here is what I found:\n\n" + "\n".join(f"- {x}" for x in lines))


def _offered(plan: Plan, request: ChatRequest) -> Plan:
    """Only tools that this request offers can be asked for."""
    names = {spec.name for spec in request.tools}
    missing = [name for name, _ in plan.calls if name not in names]
    if not missing:
        return plan
    return Plan(text=f"I would use the tool `{missing[0]}`, but I was not given it.")


def _weather(match: re.Match[str]) -> Plan:
    places = re.split(r",|\band\b", match["places"].strip(" ?.!"))
    named = [place.strip() for place in places if place.strip()]
    calls = [("get_weather", {"city": city}) for city in named]
    return Plan(text="Let me look that up.", calls=calls)


def _sum(match: re.Match[str]) -> Plan:
    expression = match["sum"].strip()
    call = ("calculate", {"expression": expression})
    return Plan(reasoning="This wants arithmetic, so I use the tool.", calls=[call])


def _clock(match: re.Match[str]) -> Plan:
    place = (match["place"] or "UTC").strip(" ?.!")
    return Plan(calls=[("get_time", {"place": place})])


def _add_todo(match: re.Match[str]) -> Plan:
    return Plan(calls=[("add_todo", {"item": match["item"].strip()})])


def _delete(match: re.Match[str]) -> Plan:
    name = match["name"].strip(" ?.!")
    text = "That cannot be undone, so somebody has to approve it."
    return Plan(text=text, calls=[("delete_database", {"name": name})])


def _slow(match: re.Match[str]) -> Plan:
    return Plan(text="This will take a while.", calls=[("slow_task", {"seconds": 30})])


def _always(plan: Plan) -> Callable[[re.Match[str]], Plan]:
    return lambda match: plan


ECHO: Final = (
    "You said: “{said}”. I am the offline model: I follow rules and know nothing. "
    "Ask me about the weather, a sum, the time or a todo list; ask for Markdown or a "
    "long story; tell me to delete a database, to use the slow tool, or to fail."
)

HELLO: Final = (
    "Hello! I am the offline model. I need no key and no network, and I can call "
    "tools, think aloud, take my time and fail on request."
)

MARKDOWN: Final = """\
# A heading

Some *emphasis*, some **strong words**, `code`, and a [link](https://trio.readthedocs.io).

1. First
2. Second
   - with a point
   - and another

> Somebody said this.

```python
async with trio.open_nursery() as nursery:
    nursery.start_soon(child)
```

| promise | kept by |
| :------ | ------: |
| numbers | the emitter |
| ends    | the session |
"""

THOUGHTS: Final = (
    "The question wants a cause. Light from the sun is scattered by the air. Short "
    "waves are scattered more than long ones, by the fourth power of the frequency. "
    "Violet would be scattered most, but there is less of it and eyes see it less."
)

SKY: Final = (
    "The air scatters blue light more than red light, so blue comes from every part "
    "of the sky. At sunset the light has a longer way, and mostly red is left of it."
)

STORY: Final = "\n\n".join(
    f"**Chapter {number}.** Once more the runner set out; this was journey {number}. "
    f"The road went on for {number * 7} miles, past {number + 2} mills and over "
    f"{number} rivers, and at each bridge somebody counted: one, two, three, and none "
    "was missing. When the light went, the runner slept; when it came back, the runner "
    "went on from exactly there, and no step was walked twice."
    for number in range(1, 13)
)

RULES: Final[Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], Plan]]]] = [
    (re.compile(pattern, re.IGNORECASE), rule)
    for pattern, rule in (
        (r"weather (?:is it |like )?(?:in|for|at) (?P<places>.+)", _weather),
        (r"what(?:'s| is) (?P<sum>[\d(][-+*/().\d\s]*[-+*/][-+*/().\d\s]*\d\)*)", _sum),
        (r"\btime\b(?: is it)?(?: (?:in|at) (?P<place>[\w /_-]+))?", _clock),
        (r"\badd (?P<item>.+?) to (?:my|the) to-?do", _add_todo),
        (r"\bto-?dos?\b|to-?do list", _always(Plan(calls=[("list_todos", {})]))),
        (r"\b(?:delete|wipe|drop) (?:the )?(?P<name>\w+)(?: database)?", _delete),
        (r"slow tool", _slow),
        (r"broken tool", _always(Plan(calls=[("broken_tool", {})]))),
        (r"\bfail\b", _always(Plan(text="I am about to fail in ", fails=True))),
        (r"markdown", _always(Plan(text=MARKDOWN))),
        (r"\bthink\b|\bsky\b", _always(Plan(reasoning=THOUGHTS, text=SKY))),
        (r"\bslowly\b", _always(Plan(text=SKY, pace=10))),
        (r"long|story", _always(Plan(text=STORY))),
        (r"\b(?:hello|hi|hey)\b", _always(Plan(text=HELLO))),
    )
]
"""The first pattern that is found decides."""

TOKEN: Final = re.compile(r"\s*\S+|\s+$")


def _deltas(plan: Plan, calls: Sequence[ToolCall]) -> Iterable[Delta]:
    for token in TOKEN.findall(plan.reasoning):
        yield ReasoningDelta(text=token)
    for token in TOKEN.findall(plan.text):
        yield TextDelta(text=token)
    for index, call in enumerate(calls):
        yield ToolCallDelta(index=index, id=call.id, name=call.name)
        arguments = json.dumps(call.arguments)
        for piece in re.findall(r".{1,6}", arguments, re.DOTALL):
            yield ToolCallDelta(index=index, arguments=piece)
