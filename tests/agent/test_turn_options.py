"""One turn unlike the others, and a turn that a filter runs again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from attrs import evolve

from agentrt.agent.agent import Agent
from agentrt.core.chat import ChatRequest, Usage
from agentrt.core.context import Context, Slot
from agentrt.core.messages import ToolMessage, UserMessage
from agentrt.core.options import TurnOptions
from agentrt.core.outcomes import Approve, TurnCompleted, TurnFailed, TurnPaused
from agentrt.filters.base import Filter, TurnCall, hook
from agentrt.runtime.run import RunOptions
from agentrt.runtime.runtime import open_runtime
from agentrt.testing import Say, ScriptedModel, call
from agentrt.tools.base import ToolResult, tool
from agentrt.tools.registry import ToolRegistry


@tool(tags=["files"])
async def read() -> str:
    """Read."""
    await trio.lowlevel.checkpoint()
    return "read"


@tool(tags=["web"], sensitive=True)
async def fetch() -> str:
    """Fetch."""
    await trio.lowlevel.checkpoint()
    return "fetched"


@tool
async def think() -> str:
    """Think."""
    await trio.lowlevel.checkpoint()
    return "hm"


TOOLS = [read, fetch, think]


def made(*steps: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(steps)
    return Agent(model=model, tools=TOOLS, system="Help.", **options), model


def names(request: ChatRequest) -> list[str]:
    return [spec.name for spec in request.tools]


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        (TurnOptions(), ["read", "fetch", "think"]),
        (TurnOptions(tags=["files"]), ["read", "think"]),
        (TurnOptions(tags=["files", "web"]), ["read", "fetch", "think"]),
        (TurnOptions(tags=["other"]), ["think"]),
        (TurnOptions(exclude_tags=["web"]), ["read", "think"]),
        (TurnOptions(tags=["web"], exclude_tags=["web"]), ["think"]),
    ],
)
async def test_tags_decide_what_is_offered(
    options: TurnOptions, offered: list[str]
) -> None:
    agent, model = made("ok")
    await agent.run("go", options=options)
    assert names(model.requests[0]) == offered


async def test_a_tool_that_is_not_offered_cannot_be_called() -> None:
    """X11"""
    agent, _ = made(call("read"), "ok")
    outcome = await agent.run("go", options=TurnOptions(exclude_tags=["files"]))
    assert isinstance(outcome, TurnCompleted)
    (record,) = outcome.calls
    assert record.status == "error"
    assert "there is no tool 'read'; there are 'fetch', 'think'" in str(record.content)


async def test_system_prompts_of_a_turn_are_its_own() -> None:
    agent, model = made("1", "2", "3")
    await agent.run("a", options=TurnOptions(extra_system=["Be brief.", "", "Rhyme."]))
    await agent.run("b", options=TurnOptions(system="Other."))
    await agent.run("c")
    systems = [request.system for request in model.requests]
    assert systems == ["Help.\n\nBe brief.\n\nRhyme.", "Other.", "Help."]


async def test_a_tool_choice_holds_for_the_first_call_of_the_turn() -> None:
    """With `required` for all of them the model could never answer."""
    agent, model = made(call("think"), "done")
    await agent.run("go", options=TurnOptions(tool_choice="required"))
    assert [request.tool_choice for request in model.requests] == ["required", None]


async def test_options_of_a_turn_win_over_the_agents() -> None:
    agent, model = made("ok", options={"temperature": 1, "seed": 7})
    await agent.run("go", options=TurnOptions(options={"temperature": 0}))
    assert model.requests[0].options == {"temperature": 0, "seed": 7}


async def test_the_limit_of_a_turn_is_its_own() -> None:
    agent, _ = made(call("think"), call("think"), "done")
    outcome = await agent.run("go", options=TurnOptions(max_iterations=1))
    assert isinstance(outcome, TurnFailed)
    assert outcome.code == "max_iterations"


def test_a_limit_below_0_is_refused() -> None:
    with pytest.raises(ValueError, match="max_iterations is -1, expected 0 or more"):
        TurnOptions(max_iterations=-1)


@pytest.mark.parametrize("value", [1.5, True, "3"])
def test_a_number_of_iterations_is_whole(value: Any) -> None:
    with pytest.raises(ValueError, match=r"max_iterations is .*, expected 0 or more"):
        TurnOptions(max_iterations=value)


@pytest.mark.parametrize("name", ["extra_system", "tags", "exclude_tags"])
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("Be brief.", r"the text 'Be brief.', .*: write \['Be brief.'\]"),
        (["a", 1], r"\['a', 1\], expected a sequence of texts"),
        (None, "None, expected a sequence of texts"),
        (7, "7, expected a sequence of texts"),
    ],
)
def test_a_text_is_not_taken_for_its_letters(name: str, value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is {why}"):
        TurnOptions(**{name: value})


async def test_a_paused_turn_goes_on_with_its_options() -> None:
    agent, model = made(call("fetch", id="f"), "done")
    options = TurnOptions(exclude_tags=["files"], extra_system=["Be brief."])
    assert isinstance(
        await agent.run("go", conversation_id="c", options=options), TurnPaused
    )
    await agent.resume("c", {"f": Approve()})
    first, second = model.requests
    assert names(second) == names(first) == ["fetch", "think"]
    assert second.system == first.system == "Help.\n\nBe brief."


async def test_a_resume_with_options_of_its_own_has_those() -> None:
    agent, model = made(call("fetch", id="f"), "done")
    options = TurnOptions(exclude_tags=["files"])
    await agent.run("go", conversation_id="c", options=options)
    await agent.resume("c", {"f": Approve()}, options=TurnOptions())
    assert names(model.requests[1]) == ["read", "fetch", "think"]


async def test_a_run_of_a_runtime_takes_options_too() -> None:
    agent, model = made("ok")
    async with open_runtime(agent) as runtime:
        turn = TurnOptions(tags=["files"])
        run = await runtime.start_run("c", "go", RunOptions(turn=turn))
        await run.wait()
    assert names(model.requests[0]) == ["read", "think"]


async def test_an_open_pause_is_given_up_on_request() -> None:
    """B58"""
    agent, _ = made(call("fetch", id="f"), "something else")
    await agent.run("go", conversation_id="c")
    assert await agent.discard_pause("c")
    assert not await agent.discard_pause("c")
    outcome = await agent.run("never mind", conversation_id="c")
    assert isinstance(outcome, TurnCompleted)
    (result,) = [m for m in await agent.history("c") if isinstance(m, ToolMessage)]
    assert result.text.startswith("This call was not run")
    assert not await agent.is_paused("c")


async def test_a_reset_forgets_everything() -> None:
    agent, model = made(call("fetch", id="f"), "ok", call("fetch", id="g"))
    await agent.run("go", conversation_id="c")
    await agent.resume("c", {"f": Approve(remember=True)})
    await agent.reset("c")
    assert list(await agent.history("c")) == []
    assert isinstance(await agent.run("go", conversation_id="c"), TurnPaused)
    assert len(model.requests[-1].messages) == 1
    await agent.reset("c")
    assert not await agent.is_paused("c")


def test_tools_are_listed_by_tags() -> None:
    registry = ToolRegistry(TOOLS)
    assert [spec.name for spec in registry.specs_with(["web"])] == ["fetch", "think"]


def asking_again(question: str) -> Filter:
    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        yield
        call.request = evolve(call.request, messages=[UserMessage(content=question)])
        await call.rerun()

    return Filter(name="again", turn=turn)


@pytest.mark.parametrize("memory", ["own", None])
async def test_a_turn_that_is_run_again_keeps_what_it_has_done(memory: Any) -> None:
    """X6, B27: state, calls and usage go on, the index and the budget begin anew."""

    @tool
    async def count(context: Context) -> ToolResult:
        """Count."""
        await trio.lowlevel.checkpoint()
        return ToolResult(content=str(context.values["n"]), writes={"n": 1})

    used = Usage(input_tokens=1, output_tokens=1, total_tokens=2)
    steps = [
        Say(calls=[call("count")], usage=used),
        Say(text="first", usage=used),
        Say(calls=[call("count")], usage=used),
        Say(text="second", usage=used),
    ]
    options = {} if memory else {"memory": None}
    model = ScriptedModel(steps)
    agent = Agent(
        model=model,
        tools=[count],
        filters=[asking_again("and now?")],
        values={"n": 0},
        slots={"n": Slot(reduce=lambda old, new: old + new)},
        max_iterations=1,
        **options,  # type: ignore[arg-type]
    )
    outcome = await agent.run("go")
    assert isinstance(outcome, TurnCompleted)
    assert [each.content for each in outcome.calls] == ["0", "1"]
    assert outcome.usage[0].total_tokens == 8
    said = [message.text for message in model.requests[-1].messages]
    assert said == ["go", "", "0", "first", "and now?", "", "1"]
