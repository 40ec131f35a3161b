"""What a run takes up: its input, and the pause before it; and giving both back."""

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import trio
from attrs import define, evolve, field

from agentrt.agent.agent import Agent
from agentrt.core.errors import SnapshotError
from agentrt.core.ids import new_id
from agentrt.core.messages import RESULT_SUFFIX, Message, UserMessage
from agentrt.core.outcomes import Interrupt, PauseSnapshot
from agentrt.runtime.run import Run
from agentrt.runtime.session import Session
from agentrt.scopes import CLEANUP_SECONDS

__all__ = ["Taking", "fresh_ids", "open_pause", "open_questions"]

logger = logging.getLogger(__name__)


@define
class Taking:
    """A session that is held for a run which is about to start.

    What fails within the block gives the session back, and the pause that was taken.
    """

    _session: Session
    _run: Run
    _agent: Agent
    pause: PauseSnapshot | None = field(default=None, init=False)
    """What was taken."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        if self.pause is not None:
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await self._agent.pauses.save(self.pause)
        self._session.release(self._run)


async def open_pause(
    agent: Agent, conversation_id: str, discard: bool
) -> PauseSnapshot | None:
    """The pause that is open; one that cannot be read may be discarded."""
    try:
        return await agent.paused(conversation_id)
    except SnapshotError:
        if not discard:
            raise
        await agent.pauses.discard(conversation_id)
        return None


async def open_questions(agent: Agent, conversation_id: str) -> Sequence[Interrupt]:
    """What the conversation waits for. It can be read though its pause cannot."""
    try:
        pause = await agent.paused(conversation_id)
    except SnapshotError as error:
        logger.error("%s", error)
        return ()
    return () if pause is None else pause.interrupts


def fresh_ids(messages: Sequence[Message], session: Session) -> Sequence[Message]:
    """The same messages, each with an id that the conversation has not seen.

    A store knows messages by id, so a client that numbers its own from 1 each time
    would lose what it says; and an id like a tool result's could hide that result.
    """
    known = {message.id for message in session.transcript.messages}
    fresh: list[Message] = []
    for message in messages:
        is_used = message.id in known or message.id.endswith(RESULT_SUFFIX)
        if is_used and isinstance(message, UserMessage):
            message = evolve(message, id=new_id())
        known.add(message.id)
        fresh.append(message)
    return tuple(fresh)
