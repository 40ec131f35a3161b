"""A program that pauses, is killed, and is taken up by another process.

`python -m tests.flow.restarts FILE pause` prints `paused` and waits to be killed;
`... resume` answers the pause and prints what came of it, as JSON. `pause-3` kills
itself when the third write to a store is durable, and `resume-3` likewise. Each call
that runs adds its id to `FILE.ran`.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import trio
from attrs import define

from agentrt.agent.agent import Agent
from agentrt.core.context import Context
from agentrt.core.messages import ToolMessage
from agentrt.core.outcomes import Approve, Decision, Deny, TurnCompleted
from agentrt.stores.sqlite import open_sqlite_stores
from agentrt.testing import ScriptedModel, call
from agentrt.tools.base import Tool, tool


def tools(ran: Path) -> list[Tool]:
    @tool
    async def read(context: Context) -> str:
        """Read."""
        async with await trio.open_file(ran, "a") as file:
            await file.write(f"{context.call_id}\n")
        return f"read by {context.call_id}"

    @tool(sensitive=True)
    async def delete(context: Context) -> str:
        """Delete."""
        async with await trio.open_file(ran, "a") as file:
            await file.write(f"{context.call_id}\n")
        return f"deleted by {context.call_id}"

    return [read, delete]


BATCH = [
    call("read", id="r1"),
    call("delete", id="d1"),
    call("read", id="r2"),
    call("delete", id="d2"),
]
ANSWERS: dict[str, Decision] = {"d1": Approve(), "d2": Deny(reason="not that one")}


@define
class Dying:
    """A store whose process is killed after so many writes; 0 is never."""

    inner: Any
    left: list[int]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def append(self, *args: Any) -> None:
        await self.inner.append(*args)
        self._count()

    async def save(self, *args: Any) -> None:
        await self.inner.save(*args)
        self._count()

    async def take(self, *args: Any) -> Any:
        taken = await self.inner.take(*args)
        self._count()
        return taken

    def _count(self) -> None:
        self.left[0] -= 1
        if self.left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def main(path: str, what: str) -> None:
    what, _, number = what.partition("-")
    left = [int(number or 0)]
    async with open_sqlite_stores(path) as stores:
        steps: list[Any] = [BATCH] if what == "pause" else ["all done"]
        agent = Agent(
            model=ScriptedModel(steps),
            tools=tools(Path(path + ".ran")),
            memory=Dying(stores.memory, left),
            pauses=Dying(stores.pauses, left),
        )
        if what == "pause":
            await agent.run("please", conversation_id="c")
            print("paused", flush=True)
            if number:
                return
            await trio.sleep_forever()
        if what == "resume" and await agent.is_paused("c"):
            outcome = await agent.resume("c", ANSWERS)
        else:
            outcome = await agent.run("go on", conversation_id="c")
        assert isinstance(outcome, TurnCompleted)
        history = await agent.history("c")
        results = [(m.call_id, m.text) for m in history if isinstance(m, ToolMessage)]
        paused = await agent.is_paused("c")
        told = {"text": outcome.text, "results": results, "paused": paused}
        print(json.dumps(told))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
