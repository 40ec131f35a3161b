"""A program that pauses, is killed, and is taken up by another process.

`python -m tests.flow.restarts FILE pause` prints `paused` and waits to be killed;
`... resume` answers the pause and prints what came of it, as JSON. Each call that runs
adds its id to `FILE.ran`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import trio

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


async def main(path: str, what: str) -> None:
    async with open_sqlite_stores(path) as stores:
        steps: list[Any] = [BATCH] if what == "pause" else ["all done"]
        agent = Agent(
            model=ScriptedModel(steps),
            tools=tools(Path(path + ".ran")),
            memory=stores.memory,
            pauses=stores.pauses,
        )
        if what == "pause":
            await agent.run("please", conversation_id="c")
            print("paused", flush=True)
            await trio.sleep_forever()
        outcome = await agent.resume("c", ANSWERS)
        assert isinstance(outcome, TurnCompleted)
        history = await agent.history("c")
        results = [(m.call_id, m.text) for m in history if isinstance(m, ToolMessage)]
        left = await agent.is_paused("c")
        print(json.dumps({"text": outcome.text, "results": results, "paused": left}))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
