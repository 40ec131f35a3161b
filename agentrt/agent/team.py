"""Subagents that work on while the agent goes on: a filter with five tools. A leaf.

Each turn has a team of its own, in a nursery around the turn: whatever ends the turn
ends the team, and a pause is an end too. What a member asks people comes to the top
when somebody waits for it, and it goes on where it was.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

import trio
from attrs import define, evolve, field

from agentrt.agent.agent import Agent
from agentrt.agent.subagents import Subagent, SubagentLimits, Subagents
from agentrt.core.context import Context
from agentrt.core.errors import ToolError
from agentrt.core.messages import ToolCall
from agentrt.core.outcomes import Interrupt
from agentrt.filters.base import Filter, TurnCall, hook
from agentrt.scopes import CLEANUP_SECONDS
from agentrt.tools.base import Tool, ToolSuspended, tool

__all__ = ["team_filter"]

Status: TypeAlias = Literal["working", "done", "failed", "waits for people", "stopped"]

GONE: Final = (
    "there is no subagent {id!r} in this turn; there are {known}. "
    "A pause or the end of a turn ends them"
)


@define(eq=False)
class _Member:
    id: str
    agent: Agent
    conversation_id: str
    status: Status = "working"
    answer: str = ""
    asked: Sequence[Interrupt] = ()
    is_asked_above: bool = False
    """Whether its questions went up with a pause: then it is kept."""

    ended: trio.Event = field(factory=trio.Event)
    scope: trio.CancelScope = field(factory=trio.CancelScope)

    @property
    def told(self) -> str:
        return f"{self.id}: {self.status}" + (f"\n{self.answer}" if self.answer else "")


@define(eq=False)
class _Team:
    """The subagents of one turn."""

    agents: Mapping[str, Agent]
    subagents: Subagents
    nursery: trio.Nursery
    members: dict[str, _Member] = field(factory=dict, init=False)

    def spawn(self, name: str, task: str, context: Context) -> _Member:
        agent = self.agents.get(name)
        if agent is None:
            known = ", ".join(map(repr, self.agents))
            raise ToolError(f"there is no agent {name!r}; there are {known}")
        limits = self.subagents.limits
        if len(self.members) >= limits.max_tasks:
            raise ToolError(f"a turn has at most {limits.max_tasks} subagents")
        id_ = f"{name}-{len(self.members) + 1}"
        member = _Member(id_, agent, f"{context.conversation_id}/{id_}")
        self.start(member, task, context)
        self.members[id_] = member
        return member

    def start(self, member: _Member, task: str, context: Context) -> None:
        """Give a member something to do."""
        limits = self.subagents.limits
        working = [each for each in self.members.values() if each.status == "working"]
        if len(working) >= limits.max_agents:
            raise ToolError(
                f"{limits.max_agents} subagents are at work: wait for one of them"
            )
        subagent = self.subagents.begin(member.id, task, context, member.id)
        member.status, member.answer, member.asked = "working", "", ()
        member.ended, member.scope = trio.Event(), trio.CancelScope()
        self.nursery.start_soon(
            self._work, member, subagent, context, name=f"subagent {member.id}"
        )

    def find(self, id_: str) -> _Member:
        if id_ not in self.members:
            known = ", ".join(map(repr, self.members)) or "none"
            raise ToolError(GONE.format(id=id_, known=known))
        return self.members[id_]

    async def _work(
        self, member: _Member, subagent: Subagent, context: Context
    ) -> None:
        status: Status = "stopped"
        try:
            with member.scope:
                member.answer = await self.subagents.run(
                    member.agent, subagent, context, keep=True
                )
                status = "done"
        except ToolSuspended as suspended:
            status, member.asked = "waits for people", suspended.interrupts
        except ToolError as error:
            status, member.answer = "failed", f"error: {error}"
        finally:
            member.status = status
            member.ended.set()

    async def wait(self, members: Sequence[_Member], context: Context) -> str:
        with trio.move_on_after(self.subagents.limits.timeout_seconds):
            for member in members:
                await member.ended.wait()
        waiting = [each for each in members if each.asked]
        for each in waiting:
            each.is_asked_above = True
        if waiting:
            raise ToolSuspended(
                [
                    evolve(asked, id=f"{each.id}/{asked.id}")
                    for each in waiting
                    for asked in each.asked
                ],
                [[each.id, each.agent.name] for each in members],
            )
        return "\n\n".join(each.told for each in members)

    def take_up(self, context: Context) -> Sequence[_Member]:
        """The members that had asked, going on with the answers."""
        nested = context.nested
        assert nested is not None
        members: list[_Member] = []
        for id_, name in nested.state or ():
            prefix = f"{id_}/"
            answers = {
                key.removeprefix(prefix): answer
                for key, answer in nested.answers.items()
                if key.startswith(prefix)
            }
            agent = self.agents.get(name)
            if agent is None:
                raise ToolError(f"there is no agent {name!r} any more")
            member = _Member(id_, agent, f"{context.conversation_id}/{id_}")
            self.members[id_] = member
            members.append(member)
            if answers:
                own = evolve(context, nested=evolve(nested, answers=answers))
                self.start(member, "", own)
            else:
                member.status, member.answer = "stopped", "it ended with the pause"
                member.ended.set()
        return members

    async def disband(self) -> None:
        """Forget what nobody waits for. What is asked at the top is kept."""
        for member in self.members.values():
            if not member.is_asked_above:
                await member.agent.forget(member.conversation_id)


@define(eq=False)
class _TeamTools:
    """The teams of all turns that run now, and what their agents may call."""

    agents: Mapping[str, Agent]
    subagents: Subagents
    teams: dict[str, _Team] = field(factory=dict, init=False)
    """By run."""

    def team(self, context: Context) -> _Team:
        team = self.teams.get(context.run_id)
        if team is None:
            raise ToolError("there are no subagents here: no turn is running")
        return team

    def fault(self, call: ToolCall) -> str | None:
        faults = [agent.fault(call) for agent in self.agents.values()]
        return None if None in faults else faults[0]

    async def discard(self, conversation_id: str, call_id: str) -> None:
        for name, agent in self.agents.items():
            for number in range(1, self.subagents.limits.max_tasks + 1):
                own = f"{conversation_id}/{name}-{number}"
                if await agent.pauses.load(own) is not None:
                    await agent.forget(own)


def team_filter(
    agents: Sequence[Agent], *, subagents: Subagents | None = None
) -> Filter:
    """Let the model spawn agents, talk to them, wait for them, and stop them.

    Each needs a memory, so that it can be sent more. At most `max_agents` work at a
    time; waiting takes at most `timeout_seconds`, and stops nobody. Register it outside
    of filters whose turn hooks should surround the whole team.

    Raises:
        ValueError: there is none, or two have one name.
    """
    named = {agent.name: agent for agent in agents}
    if not named or len(named) < len(agents):
        raise ValueError(
            f"agents are {[a.name for a in agents]}, expected names, each once"
        )
    tools = _TeamTools(named, subagents or Subagents(SubagentLimits()))

    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        run_id = call.context.run_id
        team: _Team | None = None
        try:
            async with trio.open_nursery() as nursery:
                team = _Team(named, tools.subagents, nursery)
                tools.teams[run_id] = team
                try:
                    yield
                finally:
                    del tools.teams[run_id]
                    nursery.cancel_scope.cancel(reason="the turn has ended")
        finally:
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                if team is not None:
                    await team.disband()

    brought = [*_working_tools(tools), *_waiting_tools(tools)]
    return Filter(name="team", turn=turn, tools=brought)


def _working_tools(tools: _TeamTools) -> Sequence[Tool]:
    there = "; ".join(
        f"{name}: {agent.description or 'no description'}"
        for name, agent in tools.agents.items()
    )

    # Serial, so that ids are given in the order of the calls.
    @tool(
        serial=True,
        description=f"Start a subagent on a task. It works while you go on. {there}",
    )
    async def spawn_agent(
        agent: Annotated[str, "the name of one of the agents"],
        task: Annotated[str, "what to do; it has not seen this conversation"],
        context: Context,
    ) -> str:
        await trio.lowlevel.checkpoint()
        return f"started {tools.team(context).spawn(agent, task, context).id}"

    @tool(description="Tell a subagent that has ended something more.")
    async def send_agent(agent_id: str, message: str, context: Context) -> str:
        await trio.lowlevel.checkpoint()
        team = tools.team(context)
        member = team.find(agent_id)
        if member.status not in {"done", "failed"}:
            raise ToolError(
                f"{agent_id!r} cannot be told anything now: it is {member.status!r}"
            )
        if member.agent.memory is None:
            raise ToolError(f"{agent_id!r} remembers nothing: start another one")
        team.start(member, message, context)
        return f"{agent_id} is at work again"

    return [spawn_agent, send_agent]


def _waiting_tools(tools: _TeamTools) -> Sequence[Tool]:
    @tool(description="Wait until subagents have ended, and read their answers.")
    async def wait_agent(
        agent_ids: Annotated[list[str], "which; an empty list is all"],
        context: Context,
    ) -> str:
        team = tools.team(context)
        if context.nested is not None:
            members = team.take_up(context)
        else:
            members = [team.find(id_) for id_ in agent_ids] or list(
                team.members.values()
            )
        return await team.wait(members, context)

    @tool(description="List the subagents of this turn and what they are at.")
    async def list_agents(context: Context) -> str:
        await trio.lowlevel.checkpoint()
        members = tools.team(context).members.values()
        return "\n".join(f"{each.id}: {each.status}" for each in members) or "none"

    @tool(description="Stop a subagent.")
    async def interrupt_agent(agent_id: str, context: Context) -> str:
        member = tools.team(context).find(agent_id)
        member.scope.cancel(reason="interrupted by the agent")
        await member.ended.wait()
        return member.told

    waits = evolve(wait_agent, nested=tools)
    return [waits, list_agents, interrupt_agent]
