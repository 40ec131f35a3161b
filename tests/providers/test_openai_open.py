"""What opening a provider takes from its caller and from the environment."""

import pytest
import trio

from agentrt.core.chat import ChatRequest
from agentrt.core.errors import AuthenticationError, InvalidRequestError
from agentrt.providers.openai import (
    OpenAIProvider,
    open_openai,
    open_openai_compatible,
)

KEY = "sk-test-0123456789"


async def test_openai_without_a_key_says_which_variable_to_set() -> None:
    with pytest.raises(AuthenticationError, match="set OPENAI_API_KEY"):
        async with open_openai("gpt-x", environ={}):
            pass


async def test_a_compatible_vendor_that_is_openai_needs_a_key_too() -> None:
    environ = {"OPENAI_BASE_URL": "https://api.openai.com/v1"}
    with pytest.raises(AuthenticationError, match="set OPENAI_API_KEY"):
        async with open_openai_compatible("gpt-x", environ=environ):
            pass


async def test_a_compatible_vendor_needs_a_base_url() -> None:
    with pytest.raises(InvalidRequestError, match="set OPENAI_BASE_URL"):
        async with open_openai_compatible("m", environ={}):
            pass


async def test_openai_takes_key_and_base_url_from_the_environment() -> None:
    environ = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://localhost:1/v1"}
    async with open_openai("gpt-x", environ=environ) as provider:
        assert isinstance(provider, OpenAIProvider)
        assert (provider.name, KEY in repr(provider)) == ("openai", False)


async def test_a_compatible_vendor_on_this_machine_needs_no_key() -> None:
    url = "http://localhost:1/v1"
    async with open_openai_compatible("m", base_url=url, environ={}) as provider:
        assert provider.name == "openai-compatible"


@pytest.mark.integration
async def test_an_opened_provider_sends_the_key_to_its_base_url() -> None:
    seen: list[str] = []

    async def handler(stream: trio.SocketStream) -> None:
        request = b""
        while not request.endswith(b"}"):
            request += await stream.receive_some()
        seen.extend(line for line in request.decode().split("\r\n") if KEY in line)
        body = b'{"choices": [{"message": {"content": "Hello"}}]}'
        await stream.send_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + body)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, handler, 0)
            port = listeners[0].socket.getsockname()[1]
            url = f"http://127.0.0.1:{port}/v1"
            async with open_openai("m", base_url=url, api_key=KEY) as provider:
                response = await provider.call(ChatRequest(), message_id="m1")
            nursery.cancel_scope.cancel()
    assert response.message.text == "Hello"
    assert seen == [f"authorization: Bearer {KEY}"]
