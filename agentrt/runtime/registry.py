"""Agents by the name under which they are served."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from attrs import frozen

from agentrt.agent.agent import Agent
from agentrt.core.errors import UnknownAgentError

__all__ = ["DEFAULT_AGENT", "AgentRegistry", "Agents"]

DEFAULT_AGENT: Final = "default"


@frozen(init=False)
class AgentRegistry:
    """Agents by id, in the order in which they were given."""

    _agents: Mapping[str, Agent]

    def __init__(self, agents: Iterable[Agent] = ()) -> None:
        """Take `agents`; each is served under its `name`.

        Raises:
            ValueError: two have the same name, or there is none.
        """
        by_name: dict[str, Agent] = {}
        for agent in agents:
            if agent.name in by_name:
                raise ValueError(
                    f"two agents are named {agent.name!r}: give one another name"
                )
            by_name[agent.name] = agent
        if not by_name:
            raise ValueError("there is no agent: hand in at least one")
        self.__attrs_init__(by_name)

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._agents.values())

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._agents)

    def get(self, agent_id: str) -> Agent:
        """The agent of that id; `default` is the first, if none is named so.

        Raises:
            UnknownAgentError: there is none.
        """
        agent = self._agents.get(agent_id)
        if agent is None and agent_id == DEFAULT_AGENT:
            agent = next(iter(self._agents.values()))
        if agent is None:
            names = ", ".join(repr(name) for name in self._agents)
            raise UnknownAgentError(
                f"there is no agent {agent_id!r}; there are {names}"
            )
        return agent


Agents: TypeAlias = Agent | Iterable[Agent] | AgentRegistry


def as_registry(agents: Agents) -> AgentRegistry:
    if isinstance(agents, AgentRegistry):
        return agents
    return AgentRegistry([agents] if isinstance(agents, Agent) else agents)
