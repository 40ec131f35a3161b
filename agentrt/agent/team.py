"""Subagents that work on while the agent goes on: a filter with five tools. A leaf.

Each turn has a team of its own, in a nursery around the turn: whatever ends the turn
ends the team, and a pause is an end too. What a member asks people comes to the top
when somebody waits for it, and it goes on where it was. An id is never given twice in a
turn, over its pauses too: the model would take one subagent for another.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Final, Literal, TypeAlias

import trio
from attrs import define, evolve, field

from agentrt.agent.agent import Agent
from agentrt.agent.subagents import Subagent, SubagentLimits, Subagents
from agentrt.core.chat import Usage, add_usage
from agentrt.core.context import Context, Slot
from agentrt.core.errors import SnapshotError, ToolError
from agentrt.core.messages import ToolCall
from agentrt.core.outcomes import Interrupt, TurnCompleted
from agentrt.filters.base import Filter, Hook, ToolUse, TurnCall, hook
from agentrt.scopes import CLEANUP_SECONDS
from agentrt.tools.base import Tool, ToolSuspended, tool

__all__ = ["team_filter"]

Status: TypeAlias = Literal["working", "done", "failed", "waits for people", "stopped"]

SPAWNED_KEY: Final = "agentrt/team/spawned"
"""How many the turn has started, over its pauses."""

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
    asked_by: str = ""
    """The call of `wait_agent` that its questions went up with: then it is kept."""

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
    conversation_id: str
    nursery: trio.Nursery
    spawned: int
    members: dict[str, _Member] = field(factory=dict, init=False)
    late_usage: list[Usage] = field(factory=list, init=False)
    """Of members that the end of the turn cut, when its outcome was there already."""

    is_over: bool = field(default=False, init=False)

    def spawn(self, name: str, task: str, context: Context) -> _Member:
        agent = self.agents.get(name)
        if agent is None:
            known = ", ".join(map(repr, self.agents))
            raise ToolError(f"there is no agent {name!r}; there are {known}")
        limits = self.subagents.limits
        if self.spawned >= limits.max_tasks:
            raise ToolError(f"a turn has at most {limits.max_tasks} subagents")
        self.check_room()
        member = self._member(f"{name}-{self.spawned + 1}", agent)
        self.start(member, task, context, is_new=True)
        self.spawned += 1
        self.members[member.id] = member
        return member

    def _member(self, id_: str, agent: Agent) -> _Member:
        return _Member(id_, agent, f"{self.conversation_id}/{id_}")

    def check_room(self) -> None:
        """Raise unless one more may be at work."""
        most = self.subagents.limits.max_agents
        working = [each for each in self.members.values() if each.status == "working"]
        if len(working) >= most:
            raise ToolError(f"{most} subagents are at work: wait for one of them")

    def start(
        self, member: _Member, task: str, context: Context, *, is_new: bool = False
    ) -> None:
        """Give a member something to do."""
        context = evolve(context, add_usage=partial(self._add_usage, context))
        subagent = self.subagents.begin(member.id, task, context, member.id)
        member.status, member.answer, member.asked = "working", "", ()
        member.asked_by = ""
        member.ended, member.scope = trio.Event(), trio.CancelScope()
        work = partial(self._work, member, subagent, context, is_new=is_new)
        self.nursery.start_soon(work, name=f"subagent {member.id}")

    def _add_usage(self, context: Context, usage: Usage) -> None:
        if context.add_usage is not None:
            context.add_usage(usage)
        if self.is_over:
            self.late_usage.append(usage)

    def find(self, id_: str) -> _Member:
        if id_ not in self.members:
            known = ", ".join(map(repr, self.members)) or "none"
            raise ToolError(GONE.format(id=id_, known=known))
        return self.members[id_]

    async def _work(
        self, member: _Member, subagent: Subagent, context: Context, *, is_new: bool
    ) -> None:
        status: Status = "stopped"
        try:
            with member.scope:
                if is_new:
                    # A process that died may have left one of this name.
                    await member.agent.forget(member.conversation_id)
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
        waiting = [each for each in members if each.asked and not each.asked_by]
        for each in waiting:
            each.asked_by = context.call_id
        if waiting:
            raise ToolSuspended(
                [
                    evolve(asked, id=f"{each.id}/{asked.id}")
                    for each in waiting
                    for asked in each.asked
                ],
                [_kept(each) for each in members],
            )
        return "\n\n".join(each.told for each in members)

    def take_up(self, context: Context) -> Sequence[_Member]:
        """The members that had asked, gone on with the answers, and how others were."""
        nested = context.nested
        assert nested is not None
        members: list[_Member] = []
        for id_, name, status, answer in nested.state or ():
            prefix = f"{id_}/"
            answers = {
                key.removeprefix(prefix): answer
                for key, answer in nested.answers.items()
                if key.startswith(prefix)
            }
            agent = self.agents.get(name)
            if agent is None:
                raise ToolError(f"there is no agent {name!r} any more")
            member = self._member(id_, agent)
            members.append(member)
            if answers:
                own = evolve(context, nested=evolve(nested, answers=answers))
                self.start(member, "", own)
                self.members[id_] = member
            else:
                member.status, member.answer = status, answer
                member.ended.set()
        return members

    async def interrupt(self, member: _Member) -> None:
        """End a member, though it only waits for people."""
        if member.asked_by:
            raise ToolError(
                f"what {member.id!r} asks is put to people now: it goes on with their "
                "answers, and can be stopped then"
            )
        member.scope.cancel(reason="interrupted by the agent")
        await member.ended.wait()
        if member.asked and not member.asked_by:
            member.status, member.asked = "stopped", ()
            await member.agent.forget(member.conversation_id)

    async def disband(self) -> None:
        """Forget what nobody waits for. What is asked at the top is kept."""
        for member in self.members.values():
            if not member.asked_by:
                await member.agent.forget(member.conversation_id)


def _kept(member: _Member) -> Sequence[str]:
    """A member as a pause keeps it: its conversation goes, what it said stays."""
    status, answer = member.status, member.answer
    if status == "working":
        status, answer = "stopped", "it ended with the pause"
    return [member.id, member.agent.name, status, answer]


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
        members: dict[str, _Member] = {}
        for team in self.teams.values():
            if team.conversation_id == conversation_id:
                members.update(team.members)
        for member in members.values():
            if member.asked_by == call_id:
                member.asked_by = ""  # so that its team forgets it
        for name, agent in self.agents.items():
            for number in range(1, self.subagents.limits.max_tasks + 1):
                id_ = f"{name}-{number}"
                if id_ not in members:
                    await _forget_waiting(agent, f"{conversation_id}/{id_}")


async def _forget_waiting(agent: Agent, conversation_id: str) -> None:
    try:
        is_there = await agent.pauses.load(conversation_id) is not None
    except SnapshotError:
        is_there = True  # and nobody can read it
    if is_there:
        await agent.forget(conversation_id)


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

    return Filter(
        name="team",
        turn=_turn_hook(tools),
        tool=_count_hook(tools),
        tools=[*_working_tools(tools), *_waiting_tools(tools)],
        slots={SPAWNED_KEY: Slot(reduce=max, init=0)},
    )


def _turn_hook(tools: _TeamTools) -> Hook[TurnCall]:
    @hook
    async def turn(call: TurnCall) -> AsyncIterator[None]:
        context = call.context
        spawned = int(context.values.get(SPAWNED_KEY, 0))
        team: _Team | None = None
        try:
            async with trio.open_nursery() as nursery:
                own = context.conversation_id
                team = _Team(tools.agents, tools.subagents, own, nursery, spawned)
                tools.teams[context.run_id] = team
                try:
                    yield
                finally:
                    team.is_over = True
                    del tools.teams[context.run_id]
                    nursery.cancel_scope.cancel(reason="the turn has ended")
            outcome = call.response
            if isinstance(outcome, TurnCompleted) and team.late_usage:
                used = add_usage([*outcome.usage, *team.late_usage])
                call.response = evolve(outcome, usage=used)
        finally:
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                if team is not None:
                    await team.disband()

    return turn


def _count_hook(tools: _TeamTools) -> Hook[ToolUse]:
    """Keeps the number of spawns with the turn's values."""

    @hook
    async def count(call: ToolUse) -> AsyncIterator[None]:
        yield
        team = tools.teams.get(call.context.run_id)
        if team is not None and call.request.name == "spawn_agent":
            writes = {**call.response.writes, SPAWNED_KEY: team.spawned}
            call.response = evolve(call.response, writes=writes)

    return count


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
        team.check_room()
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
            named = dict.fromkeys(agent_ids or team.members)
            members = [team.find(id_) for id_ in named]
        return await team.wait(members, context)

    @tool(description="List the subagents of this turn and what they are at.")
    async def list_agents(context: Context) -> str:
        await trio.lowlevel.checkpoint()
        members = tools.team(context).members.values()
        return "\n".join(f"{each.id}: {each.status}" for each in members) or "none"

    @tool(description="Stop a subagent.")
    async def interrupt_agent(agent_id: str, context: Context) -> str:
        team = tools.team(context)
        member = team.find(agent_id)
        await team.interrupt(member)
        return member.told

    waits = evolve(wait_agent, nested=tools)
    return [waits, list_agents, interrupt_agent]
