"""What opening a provider takes from its caller and from the environment."""

import pytest

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
