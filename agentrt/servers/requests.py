"""What a WebSocket peer asks: a frame, read as a request. No I/O.

What does not fit is an `InputError` that says where, with the value.
"""

import json
from collections.abc import Mapping
from typing import Any

from agentrt.agui.intake import RunInput, read_id, read_run_input, show
from agentrt.core.errors import InputError
from agentrt.runtime.registry import DEFAULT_AGENT

__all__ = ["read_agent", "read_input", "read_request", "read_thread"]


def read_request(text: str | bytes) -> Mapping[str, Any]:
    """What a frame holds."""
    if isinstance(text, bytes):
        raise InputError("the frame is binary, expected JSON text")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the frame is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"the frame holds {type(value).__name__}, expected an object")
    return value


def read_thread(request: Mapping[str, Any]) -> str:
    """The conversation that it is about."""
    return read_id(request, "threadId", required=True)


def read_agent(request: Mapping[str, Any]) -> str:
    """Which agent is to do it."""
    agent = request.get("agent", DEFAULT_AGENT)
    if not isinstance(agent, str):
        raise InputError(f"agent is {show(agent)}, expected a text")
    return agent


def read_input(request: Mapping[str, Any]) -> RunInput:
    """What a run is to start or go on with; its conversation may be named outside."""
    given = request.get("input")
    if isinstance(given, dict):
        given = {"threadId": request.get("threadId"), **given}
    wanted = read_run_input(given)
    thread_id = request.get("threadId", wanted.conversation_id)
    if thread_id != wanted.conversation_id:
        raise InputError(
            f"threadId is {show(thread_id)}, and input.threadId is "
            f"{show(wanted.conversation_id)}: expected the same"
        )
    return wanted
