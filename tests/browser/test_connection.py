"""The page when it is cut, reloaded or opened twice: no character lost or doubled."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from agentrt.models.offline import HELLO, STORY
from tests.browser.chat import Chat, Server

pytestmark = pytest.mark.browser

OpenChat: TypeAlias = Callable[..., Chat]


def test_a_reload_in_mid_answer_goes_on_without_a_lost_character(
    rigged: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(rigged.url)
    chat.send("Tell me a long story")
    before = chat.wait_words(60)
    chat.page.reload()
    chat.wait_words(60)
    chat.wait_row("run/finished")
    assert len(before) < len(STORY)
    assert chat.text() == STORY


def test_a_cut_in_mid_answer_goes_on_without_a_lost_character(
    rigged: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(rigged.url)
    chat.send("Tell me a long story")
    for count in (60, 250, 400):
        before = chat.wait_words(count)
        assert len(before) < len(STORY)
        rigged.cut()
    chat.wait_row("run/finished")
    numbers = [seq for seq, _ in chat.rows()]
    assert chat.text() == STORY
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_cut_while_nothing_happens_is_mended(
    rigged: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(rigged.url)
    chat.ask("hello")
    rigged.cut()
    chat.find("connection", ':not([data-state="online"])').wait_for(state="attached")
    chat.wait_online()
    assert chat.ask("hello again", runs=2) == HELLO


def test_a_message_sent_while_there_is_no_connection_arrives_once(
    rigged: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(rigged.url)
    rigged.cut()
    chat.find("connection", ':not([data-state="online"])').wait_for(state="attached")
    assert chat.ask("hello") == HELLO
    assert chat.find("message-user").count() == 1


def test_two_tabs_on_one_thread_show_the_same_events(
    rigged: Server, open_chat: OpenChat
) -> None:
    one = open_chat(rigged.url)
    two = open_chat(one.page.url, beside=one)
    one.ask("hello")
    two.wait_row("run/finished")
    two.ask("Weather in Paris and Rome", runs=2)
    one.wait_row("run/finished", 2)
    assert one.rows() == two.rows()
    assert one.text() == two.text()
    for chat in (one, two):
        assert chat.find("message-user").count() == 2


def test_an_answer_given_in_one_tab_ends_the_question_in_the_other(
    rigged: Server, open_chat: OpenChat
) -> None:
    one = open_chat(rigged.url)
    two = open_chat(one.page.url, beside=one)
    one.send("Delete the production database")
    two.card("delete_database", "waiting")
    two.find("approve").click()
    for chat in (one, two):
        chat.wait_row("run/finished")
        chat.card("delete_database", "done")
        assert chat.find("approve").count() == 0
    assert one.rows() == two.rows()
