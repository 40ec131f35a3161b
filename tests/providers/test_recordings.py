"""Real traffic of many vendors, and what must be made of it.

Needs a directory of recordings, each a JSON file with `request` and `response`.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import field, frozen

from agentrt.core.chat import (
    ChatRequest,
    ChatResponse,
    Delta,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from agentrt.core.errors import (
    AuthenticationError,
    ContextOverflowError,
    InvalidRequestError,
    ModelError,
    NetworkError,
    QuotaExceededError,
    RateLimitError,
    ServerError,
)
from agentrt.core.messages import ToolCall, UserMessage
from agentrt.providers.errors import FailedReply, error_from_reply
from agentrt.providers.http import open_http_transport
from agentrt.providers.openai import OpenAIProvider
from agentrt.providers.openai_wire import quirks_of

RECORDINGS = os.environ.get("AGENTRT_RECORDINGS", "")

pytestmark = pytest.mark.skipif(
    not RECORDINGS, reason="AGENTRT_RECORDINGS names no directory of recordings"
)


@frozen(kw_only=True)
class Expected:
    """What a recording must become. Long texts by their length and two ends."""

    text: str = ""
    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    usage: Mapping[str, int] | None = field(factory=dict)
    finish: FinishReason = FinishReason.STOP


def call(name: str, id_: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=id_, name=name, arguments=arguments)


def usage(input_tokens: int, output_tokens: int, total: int, **more: int) -> Any:
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": total,
        **more,
    }


CHAT = "openai-chat/"
COMPATIBLE = "openai-compatible/"
NO_CACHE = {"cached_input_tokens": 0, "reasoning_tokens": 0}

EXPECTED: Mapping[str, Expected] = {
    f"{CHAT}json-schema-stream": Expected(
        text='{"city":"San Francisco","temperature":61,"units":"f"}',
        usage=usage(79, 14, 93, reasoning_tokens=0),
    ),
    f"{CHAT}parallel-tools-stream": Expected(
        calls=(
            call(
                "get_current_weather",
                "call_fHCjJqt9Pysde6vcJcvbXGBx",
                location="Seattle, WA",
            ),
            call(
                "get_current_weather",
                "call_3J9foSw3CUb48lrqIXoTky6U",
                location="San Francisco, CA",
            ),
        ),
        usage=usage(75, 51, 126, **NO_CACHE),
        finish=FinishReason.TOOL_USE,
    ),
    f"{CHAT}pdf-inline-sync": Expected(
        text='The main content of the document is "Dummy PDF file."',
        usage=usage(235, 13, 248, **NO_CACHE),
    ),
    f"{CHAT}prompt-cache-sync": Expected(
        text="OK",
        usage=usage(
            4020,
            4,
            4024,
            cached_input_tokens=4012,
            cache_write_input_tokens=0,
            reasoning_tokens=0,
        ),
    ),
    f"{CHAT}refusal-stream": Expected(
        text="I'm sorry, I can't assist with that request.",
        usage=usage(79, 11, 90, reasoning_tokens=0),
        finish=FinishReason.REFUSAL,
    ),
    f"{CHAT}text-stream-usage": Expected(
        text='"This is a test."', usage=usage(12, 5, 17, **NO_CACHE)
    ),
    f"{CHAT}text-sync": Expected(
        text="The capital of France is Paris.", usage=usage(24, 8, 32, **NO_CACHE)
    ),
    f"{CHAT}tool-roundtrip-sync": Expected(
        calls=(
            call("get_capital", "call_SkEQ3ZGSJC8m6AvaIGNuuKdm", country="England"),
        ),
        usage=usage(104, 16, 120, **NO_CACHE),
        finish=FinishReason.TOOL_USE,
    ),
    f"{COMPATIBLE}azure-empty-first-choices-stream": Expected(
        text="120: Why did the Opentelemetry develo…each new traces!",
        usage=None,
    ),
    f"{COMPATIBLE}deepseek-reasoning-tool-sync-1": Expected(
        text="Let me load the dice rolling capability!",
        reasoning="233: The user wants to play a dice ga…apability first.",
        calls=(
            call("load_capability", "call_00_sXqYgMESDht75NCLLZtt9804", id="DICE_ROLL"),
        ),
        usage=usage(563, 116, 679, cached_input_tokens=512, reasoning_tokens=60),
        finish=FinishReason.TOOL_USE,
    ),
    f"{COMPATIBLE}deepseek-reasoning-tool-sync-2-replay": Expected(
        text="Let me get your name and roll the die!",
        reasoning="105: Great, now I have access to the …en roll the die.",
        calls=(
            call("get_player_name", "call_00_6edlnw3Z1MgeMfey687g8451"),
            call("roll_dice", "call_01_km02sac7sHxNDPATKLZy7705"),
        ),
        usage=usage(875, 79, 954, cached_input_tokens=0, reasoning_tokens=26),
        finish=FinishReason.TOOL_USE,
    ),
    f"{COMPATIBLE}deepseek-tool-cache-stream": Expected(
        calls=(
            call(
                "weather",
                "call_00_YB7ndmEKi1rYbirmMm5O8405",
                latitude="48.8575",
                longitude="2.3514",
            ),
        ),
        usage=usage(495, 65, 560, cached_input_tokens=384),
        finish=FinishReason.TOOL_USE,
    ),
    f"{COMPATIBLE}gemini-compat-empty-tool-id-sync": Expected(
        calls=(call("get_current_time", ""),),
        usage=usage(35, 12, 109),
        finish=FinishReason.TOOL_USE,
    ),
    f"{COMPATIBLE}kimi-name-repeated-no-finish-stream": Expected(
        calls=(call("llm_version", "0"),),
        usage=usage(57, 17, 74, **NO_CACHE),
        finish=FinishReason.TOOL_USE,
    ),
    f"{COMPATIBLE}mistral-thinking-parts-stream": Expected(
        text="144",
        reasoning="174: The user is asking for the produ…e answer is 144.",
        usage=usage(31, 66, 97, cached_input_tokens=0),
    ),
    f"{COMPATIBLE}mistral-tool-missing-index-stream": Expected(
        calls=(call("get_weather", "EscTeQY62", city="San Francisco"),),
        usage=usage(96, 23, 119),
        finish=FinishReason.TOOL_USE,
    ),
    f"{COMPATIBLE}ollama-reasoning-tool-stream": Expected(
        reasoning="81: We need to call weather function…vide as strings.",
        calls=(
            call("weather", "call_x7rn5sl5", latitude="52.5200", longitude="13.4050"),
        ),
        usage=usage(169, 55, 224),
        finish=FinishReason.TOOL_USE,
    ),
    f"{COMPATIBLE}openrouter-reasoning-details-tool-stream-1": Expected(
        reasoning="211: The user is asking for the weath… this parameter.",
        calls=(
            call(
                "reasoning_weather",
                "toolu_bdrk_01L9pX1Wp4FAEq9TT2Z6UAe7",
                city="Berlin",
            ),
        ),
        usage=usage(
            626,
            106,
            732,
            cached_input_tokens=0,
            cache_write_input_tokens=0,
            reasoning_tokens=54,
        ),
        finish=FinishReason.TOOL_USE,
    ),
    f"{COMPATIBLE}openrouter-reasoning-details-tool-stream-2-replay": Expected(
        text="95: The current weather in Berlin is…cast conditions.",
        usage=usage(
            754,
            28,
            782,
            cached_input_tokens=0,
            cache_write_input_tokens=0,
            reasoning_tokens=0,
        ),
    ),
    f"{COMPATIBLE}perplexity-crlf-no-done-stream": Expected(
        text="1 2 3", usage=usage(8, 5, 13)
    ),
    f"{COMPATIBLE}qwen-empty-ids-tool-stream": Expected(
        calls=(
            call("weather", "call_eee11723464a4b9eb8cee71d", location="San Francisco"),
        ),
        usage=usage(295, 22, 317, cached_input_tokens=0),
        finish=FinishReason.TOOL_USE,
    ),
    f"{COMPATIBLE}zai-reasoning-stream": Expected(
        text="4",
        reasoning='2173: \n1.  **Analyze the User\'s Reques…response:** "4".',
        usage=usage(13, 564, 577, cached_input_tokens=0, reasoning_tokens=561),
    ),
}

FINISHED = (
    '"finish_reason":"stop"',
    '"finish_reason":"tool_calls"',
    "data: [DONE]",
)

STREAMS = [name for name in EXPECTED if "-stream" in name]

ERRORS: Mapping[str, tuple[type[ModelError], float | None]] = {
    "anthropic-400-prompt-too-long": (ContextOverflowError, None),
    "anthropic-529-overloaded": (ServerError, None),
    "azure-429-retry-after": (RateLimitError, 1.0),
    "gemini-400-invalid-key": (AuthenticationError, None),
    "gemini-429-retry-info": (RateLimitError, 48.0),
    "groq-400-tool-use-failed": (InvalidRequestError, None),
    "html-502-bad-gateway": (ServerError, None),
    "mistral-401-detail": (AuthenticationError, None),
    "ollama-400-context": (ContextOverflowError, None),
    "ollama-401-api-error-type": (AuthenticationError, None),
    "openai-400-context-length": (ContextOverflowError, None),
    "openai-401-invalid-key": (AuthenticationError, None),
    "openai-404-model-not-found": (InvalidRequestError, None),
    "openai-429-insufficient-quota": (QuotaExceededError, None),
    "openrouter-429-upstream": (RateLimitError, None),
    "zhipu-429-1113-balance": (QuotaExceededError, None),
}


def recording(name: str) -> Any:
    return json.loads((Path(RECORDINGS) / f"{name}.json").read_text("utf-8"))


def shortened(text: str) -> str:
    return text if len(text) < 80 else f"{len(text)}: {text[:32]}…{text[-16:]}"


def summary(response: ChatResponse) -> Expected:
    return Expected(
        text=shortened(response.message.text),
        reasoning=shortened(response.message.reasoning),
        calls=response.message.tool_calls,
        usage=None if response.usage is None else counts(response.usage),
        finish=response.finish_reason or FinishReason.UNKNOWN,
    )


def counts(found: Usage) -> Mapping[str, int]:
    names = (
        "input_tokens",
        "output_tokens",
        "total_tokens",
        "cached_input_tokens",
        "cache_write_input_tokens",
        "reasoning_tokens",
    )
    values = {name: getattr(found, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


class Pieces(httpx.AsyncByteStream):
    """A body in pieces of `size` bytes."""

    def __init__(self, body: bytes, size: int) -> None:
        self._pieces = [body[n : n + size] for n in range(0, len(body), size)]

    def __aiter__(self) -> "Pieces":
        self._rest = iter(self._pieces)
        return self

    async def __anext__(self) -> bytes:
        try:
            return next(self._rest)
        except StopIteration:
            raise StopAsyncIteration from None


async def replayed(
    recorded: Any, told: list[Delta] | None, *, size: int, cut: int | None = None
) -> ChatResponse:
    """Call the provider with what was recorded as the answer."""
    answer = recorded["response"]
    body = answer["body"].encode()[:cut]

    async def vendor(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            answer["status"], headers=answer["headers"], stream=Pieces(body, size)
        )

    base = recorded["request"]["url"].replace("/chat/completions", "")
    async with open_http_transport(transport=httpx.MockTransport(vendor)) as transport:
        provider = OpenAIProvider(
            transport=transport,
            base_url=base,
            model="asked",
            key="sk-test",
            quirks=quirks_of(base, provider="openai"),
        )
        return await provider.call(
            ChatRequest(messages=[UserMessage(content="?")]),
            message_id="m1",
            sink=None if told is None else told.append,
        )


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", EXPECTED)
async def test_a_recording_becomes_what_the_vendor_meant(name: str, size: int) -> None:
    recorded = recording(name)
    told: list[Delta] = []
    response = await replayed(recorded, told if name in STREAMS else None, size=size)
    assert summary(response) == EXPECTED[name]


@pytest.mark.parametrize("name", STREAMS)
async def test_the_deltas_of_a_recording_add_up_to_its_message(name: str) -> None:
    told: list[Delta] = []
    response = await replayed(recording(name), told, size=64)
    texts = [delta.text for delta in told if isinstance(delta, TextDelta)]
    thoughts = [delta.text for delta in told if isinstance(delta, ReasoningDelta)]
    assert "".join(texts) == response.message.text
    assert "".join(thoughts) == response.message.reasoning


@pytest.mark.parametrize("name", STREAMS)
async def test_a_recording_cut_before_its_terminal_is_an_error(name: str) -> None:
    recorded = recording(name)
    body = recorded["response"]["body"]
    marks = [body.find(mark) for mark in FINISHED if mark in body]
    start = max(body.rfind("\n", 0, min(marks)), 0)
    ends = [n + 1 for n in range(start) if body[n] == "\n"]
    for end in ends[:: max(1, len(ends) // 20)]:
        cut = len(body[:end].encode())
        with pytest.raises(NetworkError, match="stream ended early"):
            await replayed(recorded, [], size=1 << 20, cut=cut)


@pytest.mark.parametrize("name", ERRORS)
def test_a_recorded_refusal_becomes_the_right_error(name: str) -> None:
    answer = recording(f"errors/{name}")["response"]
    reply = FailedReply(
        status=answer["status"],
        headers=answer["headers"],
        body=answer["body"].encode(),
    )
    error = error_from_reply(reply, provider="vendor")
    assert (type(error), error.retry_after) == ERRORS[name]
    assert 0 < len(str(error)) < 500


async def test_an_error_after_the_finish_reason_is_raised_after_what_came() -> None:
    told: list[Delta] = []
    with pytest.raises(InvalidRequestError, match="Token limit reached"):
        await replayed(recording("errors/openrouter-midstream-error"), told, size=50)
    thoughts = [delta.text for delta in told if isinstance(delta, ReasoningDelta)]
    assert len("".join(thoughts)) == 42
