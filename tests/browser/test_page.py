"""The page in a browser: answers, tools, stopping, approvals, and who may read it."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from agentrt.models.offline import HELLO, SKY, STORY, THOUGHTS
from tests.browser.chat import ARTIFACTS, Chat, Server, expect

pytestmark = pytest.mark.browser

OpenChat: TypeAlias = Callable[..., Chat]


def test_an_answer_is_streamed_and_shown_whole(
    served: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(served.url)
    chat.send("hello")
    begun = chat.wait_words(1)
    chat.wait_row("run/finished")
    assert len(begun) < len(HELLO)
    assert chat.text() == HELLO
    assert chat.find("message-user").inner_text() == "hello"
    assert HELLO in chat.find("message-assistant").inner_text()


def test_a_suggestion_is_sent_by_a_click(served: Server, open_chat: OpenChat) -> None:
    chat = open_chat(served.url)
    chat.find("suggestion").filter(has_text="12 * (3 + 4)").click()
    chat.wait_row("run/finished")
    assert chat.text() == "12 * (3 + 4) = 84"


def test_thinking_is_shown_apart_from_the_answer(
    rigged: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(rigged.url)
    assert chat.ask("think: why is the sky blue?") == SKY
    chat.find("reasoning").locator("summary").click()
    assert THOUGHTS in chat.find("reasoning").inner_text()


def test_a_tool_call_is_a_card_with_arguments_and_result(
    served: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(served.url)
    chat.send("What is the weather in Paris?")
    chat.card("get_weather", "running")
    chat.wait_row("run/finished")
    card = chat.card("get_weather", "done")
    assert '"city": "Paris"' in card.locator('[data-testid="tool-args"]').inner_text()
    result = card.locator('[data-testid="tool-result"]').inner_text()
    assert result.startswith("In Paris it is ")
    assert chat.text() == result


def test_parallel_tool_calls_are_a_card_each(
    rigged: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(rigged.url)
    chat.ask("Weather in Paris, Rome and Oslo")
    cards = chat.find("tool-card", '[data-status="done"]')
    expect(cards).to_have_count(3)


def test_a_failing_run_is_told_and_the_thread_goes_on(
    rigged: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(rigged.url)
    chat.send("fail please")
    chat.find("run-error").wait_for()
    assert "the offline model was asked to fail" in chat.find("run-error").inner_text()
    assert chat.ask("hello") == HELLO


def test_stop_in_mid_answer_keeps_what_was_said(
    served: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(served.url)
    chat.send("Tell me a long story")
    chat.wait_words(40)
    chat.find("stop").click()
    chat.find("stopped").wait_for()
    chat.wait_row("run/cancelled")
    said = chat.text()
    assert len(said) >= 200
    assert STORY.startswith(said)
    assert said != STORY
    assert chat.ask("hello") == HELLO


def test_stop_in_a_tool_runs_its_cleanup(rigged: Server, open_chat: OpenChat) -> None:
    assert rigged.notes is not None
    chat = open_chat(rigged.url)
    chat.send("use the careful tool")
    chat.card("careful_task", "running")
    before = rigged.notes.read_text()
    chat.find("stop").click()
    chat.find("stopped").wait_for()
    chat.wait_row("run/cancelled")
    assert before == "began\n"
    assert rigged.notes.read_text() == "began\ncleaned up\n"


def test_an_approved_call_runs(served: Server, open_chat: OpenChat) -> None:
    chat = open_chat(served.url)
    chat.send("Delete the production database")
    chat.card("delete_database", "waiting")
    chat.find("approve").click()
    chat.wait_row("run/finished")
    card = chat.card("delete_database", "done")
    assert "“production” is gone" in card.inner_text()
    assert "“production” is gone" in chat.text()


def test_a_denied_call_does_not_run_and_the_reason_is_read(
    served: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(served.url)
    chat.send("Delete the production database")
    chat.card("delete_database", "waiting")
    chat.find("deny-reason").fill("we still need it")
    chat.find("deny").click()
    chat.wait_row("run/finished")
    card = chat.card("delete_database", "denied")
    assert "is gone" not in card.inner_text()
    assert "we still need it" in chat.text()


def test_an_approval_waits_over_a_reload(rigged: Server, open_chat: OpenChat) -> None:
    chat = open_chat(rigged.url)
    chat.send("Delete the production database")
    chat.card("delete_database", "waiting")
    chat.page.reload()
    chat.card("delete_database", "waiting")
    chat.find("approve").click()
    chat.wait_row("run/finished")
    chat.card("delete_database", "done")


def test_threads_are_kept_apart_and_come_back(
    rigged: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(rigged.url)
    chat.ask("hello")
    chat.find("new-thread").click()
    assert chat.ask("what is 2 + 3") == "2 + 3 = 5"
    expect(chat.find("thread-item")).to_have_count(2)
    chat.find("thread-item").filter(has_text="hello").locator("a").click()
    expect(chat.find("message-user")).to_have_text(["hello"])
    assert chat.text() == HELLO


def test_markdown_of_the_model_is_never_run(
    rigged: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(rigged.url)
    chat.ask("be hostile")
    for link in chat.find("message-assistant").locator("a").all():
        assert (link.get_attribute("href") or "").startswith(("https:", "http:", "#"))
    transcript = chat.find("transcript")
    for tag in ("script", "img", "iframe", "object", "embed", "style", "svg[onload]"):
        assert transcript.locator(f".markdown {tag}").count() == 0
    for code in chat.find("message-assistant").locator("code").all():
        code.hover()
    assert chat.page.evaluate("window.pwned") is None
    assert "The end." in transcript.inner_text()


def test_the_page_can_be_used_by_the_keyboard_alone(
    served: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(served.url)
    keyboard = chat.page.keyboard
    keyboard.type("Delete the production database")
    keyboard.press("Enter")
    chat.card("delete_database", "waiting")
    for _ in range(60):
        if chat.page.evaluate("document.activeElement.dataset.testid") == "approve":
            break
        keyboard.press("Shift+Tab")
    keyboard.press("Enter")
    chat.wait_row("run/finished")
    chat.card("delete_database", "done")
    focused = chat.page.evaluate("document.activeElement.dataset.testid")
    assert focused == "composer"
    keyboard.type("first line")
    keyboard.press("Shift+Enter")
    keyboard.type("use the slow tool")
    keyboard.press("Enter")
    chat.card("slow_task", "running")
    keyboard.press("Escape")
    chat.find("stopped").wait_for()


def test_a_phone_of_360_pixels_shows_everything_without_scrolling_sideways(
    served: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(served.url, viewport={"width": 360, "height": 740}, has_touch=True)
    chat.ask("Show me some Markdown")
    chat.ask("What is the weather in Paris?", runs=2)
    wide = "document.scrollingElement.scrollWidth"
    assert chat.page.evaluate(wide) == 360
    for test_id in ("composer", "send", "panel-toggle", "connection"):
        box = chat.find(test_id).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    chat.picture(ARTIFACTS / "phone.png")
    chat.find("panel-toggle").click()
    expect(chat.find("event-panel")).to_be_visible()
    assert chat.page.evaluate(wide) == 360


BRIGHTNESS = """() => {
  const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g);
  return (Number(r) + Number(g) + Number(b)) / 3;
}"""


def test_dark_mode_follows_the_system_and_the_toggle_is_kept(
    rigged: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(rigged.url, color_scheme="dark")
    chat.ask("Show me some Markdown")
    dark = chat.page.evaluate(BRIGHTNESS)
    chat.picture(ARTIFACTS / "dark.png")
    chat.find("theme-toggle").click()
    light = chat.page.evaluate(BRIGHTNESS)
    chat.page.reload()
    chat.wait_online()
    assert dark < 80
    assert light > 200
    assert chat.page.evaluate(BRIGHTNESS) == light


def test_weather_and_an_approval_stand_side_by_side_with_their_events(
    served: Server, open_chat: OpenChat
) -> None:
    chat = open_chat(served.url, color_scheme="light")
    chat.ask("What is the weather in Paris?")
    chat.send("Delete the production database")
    chat.card("delete_database", "waiting")
    chat.wait_row("run/paused")
    expect(chat.find("event-panel")).to_be_visible()
    chat.picture(ARTIFACTS / "page.png")
