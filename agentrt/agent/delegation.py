"""Tools that give tasks to other agents. A leaf: hand them to an `Agent`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio
from attrs import define, evolve, field, frozen

from agentrt.agent.agent import Agent
from agentrt.agent.subagents import SubagentLimits, Subagents
from agentrt.core.context import Context
from agentrt.core.errors import SnapshotError, ToolError
from agentrt.core.messages import ToolCall
from agentrt.core.outcomes import Decision, Interrupt
from agentrt.tools.base import Tool, ToolSuspended

__all__ = ["delegate_tool", "fan_out_tool"]


@frozen
class _NestedAgent:
    """What the tools here know of questions of their subagents."""

    agent: Agent
    subagents: Subagents

    def fault(self, call: ToolCall) -> str | None:
        tools = self.agent.client.tools
        if tools.find(call.name) is None:  # then it is of a subagent further down
            below = [t.nested.fault(call) for t in tools if t.nested is not None]
            if below:
                return None if None in below else below[0]
        return self.agent.fault(call)

    async def discard(self, conversation_id: str, call_id: str) -> None:
        place = f"{conversation_id}/{call_id}"
        for number in range(-1, self.subagents.limits.max_tasks):
            own = place if number < 0 else f"{place}/{number}"
            if await self._holds_pause(own):
                await self.agent.forget(own)

    async def _holds_pause(self, conversation_id: str) -> bool:
        try:
            return await self.agent.pauses.load(conversation_id) is not None
        except SnapshotError:  # one that nobody can read must go as well
            return True


def _prompt(task: str, background: str) -> str:
    return "\n\n".join(part.strip() for part in (background, task) if part.strip())


TASK: Final = {
    "type": "string",
    "description": "What to do, with all that is needed to know: "
    "the subagent has not seen this conversation.",
}

BACKGROUND: Final = {
    "type": "string",
    "description": "What the task rests on, if anything.",
}


def delegate_tool(
    agent: Agent,
    *,
    name: str = "delegate",
    description: str = "",
    subagents: Subagents | None = None,
) -> Tool:
    """A tool that gives one task to `agent` and returns its answer.

    The subagent's own description says when to use it, unless `description` does. Its
    conversation is forgotten when it has answered. What it asks people pauses the turn
    at the top; if its stores are durable, it goes on in another process too.
    """
    runner = subagents or Subagents(SubagentLimits())

    async def run(arguments: Mapping[str, Any], context: Context) -> str:
        prompt = _prompt(arguments["task"], arguments.get("background", ""))
        subagent = runner.begin(agent.name, prompt, context, context.call_id)
        return await runner.run(agent, subagent, context)

    return Tool(
        name=name,
        description=description or agent.description or "Give a task to a subagent.",
        parameters={
            "type": "object",
            "properties": {"task": TASK, "background": BACKGROUND},
            "required": ["task"],
        },
        run=run,
        timeout_seconds=runner.limits.timeout_seconds,
        nested=_NestedAgent(agent, runner),
    )


def fan_out_tool(
    agent: Agent,
    *,
    name: str = "fan_out",
    description: str = "",
    subagents: Subagents | None = None,
) -> Tool:
    """A tool that gives several tasks to as many subagents at once.

    The answers come in the order of the tasks. One that fails says so in its place, and
    the others go on. Those that wait for people pause the turn together, and those that
    are done by then are not run again.
    """
    runner = subagents or Subagents(SubagentLimits())
    most = runner.limits.max_tasks

    async def run(arguments: Mapping[str, Any], context: Context) -> str:
        batch = _FanOut(agent, runner, context, arguments["tasks"])
        return await batch.run()

    return Tool(
        name=name,
        description=description or "Give several independent tasks to subagents.",
        parameters={
            "type": "object",
            "properties": {
                "tasks": {
                    "type": "array",
                    "items": TASK,
                    "minItems": 1,
                    "maxItems": most,
                }
            },
            "required": ["tasks"],
        },
        run=run,
        timeout_seconds=runner.limits.timeout_seconds,
        nested=_NestedAgent(agent, runner),
    )


@define
class _FanOut:
    """The tasks of one call, each with a subagent of its own."""

    _agent: Agent
    _subagents: Subagents
    _context: Context
    _tasks: Sequence[str]
    _answers: dict[int, str] = field(factory=dict, init=False)
    _asked: dict[int, Sequence[Interrupt]] = field(factory=dict, init=False)

    async def run(self) -> str:
        nested = self._context.nested
        if nested is not None:
            done = dict(nested.state or {})
            self._answers.update({int(key): text for key, text in done.items()})
        is_whole = False
        try:
            async with trio.open_nursery() as nursery:
                for number, task in enumerate(self._tasks):
                    if number not in self._answers:
                        title = f"subagent {number} of {self._context.call_id}"
                        nursery.start_soon(self._one, number, task, name=title)
            is_whole = True
        finally:
            if not is_whole:
                # It was cut, so nobody will be asked. It shields itself.
                await self._forget_asked()  # noqa: ASYNC102
        if self._asked:
            raise ToolSuspended(
                [
                    evolve(each, id=f"{number}/{each.id}")
                    for number, asked in sorted(self._asked.items())
                    for each in asked
                ],
                {str(number): text for number, text in self._answers.items()},
            )
        return "\n\n".join(
            f"## Task {number + 1}\n{self._answers[number]}"
            for number in range(len(self._tasks))
        )

    async def _forget_asked(self) -> None:
        context = self._context
        for number in self._asked:
            place = f"{context.conversation_id}/{context.call_id}/{number}"
            await self._agent.forget(place)

    async def _one(self, number: int, task: str) -> None:
        place = f"{self._context.call_id}/{number}"
        name = f"{self._agent.name}#{number + 1}"
        try:
            subagent = self._subagents.begin(name, task, self._context, place)
            own = self._context_of(number)
            self._answers[number] = await self._subagents.run(
                self._agent, subagent, own
            )
        except ToolSuspended as suspended:
            self._asked[number] = suspended.interrupts
        except ToolError as error:
            self._answers[number] = f"error: {error}"

    def _context_of(self, number: int) -> Context:
        """With the answers to what this one asked."""
        nested = self._context.nested
        if nested is None:
            return self._context
        prefix = f"{number}/"
        own: dict[str, Decision] = {
            id_.removeprefix(prefix): answer
            for id_, answer in nested.answers.items()
            if id_.startswith(prefix)
        }
        return evolve(self._context, nested=evolve(nested, answers=own))
