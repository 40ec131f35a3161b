"""Indexes of tools: which words count, in which order, and that no pattern hangs."""

import math
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.chat import ToolSpec
from agentrt.testing import trio_property
from agentrt.testing.strategies import texts
from agentrt.tools.index import KeywordIndex, RegexIndex, search_tokens
from tests.filters.catalogue import TOOLS

WORDS = ["read", "file", "list", "send", "message", "天气", "预报"]


def catalogue(**descriptions: str) -> Sequence[ToolSpec]:
    return [
        ToolSpec(name=name, description=text) for name, text in descriptions.items()
    ]


SOME = catalogue(
    read_file="Read a file of the project.",
    writeFile="Write a file of the project.",
    get_weather="Tell the weather of a city of the project.",
    query_forecast="查询天气预报。 Of the project.",
    send_mail="Send mail to people of the project.",
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", set()),
        ("git_commit", {"git", "commit"}),
        ("getFileInfo", {"get", "file", "info"}),
        ("HTTPServer2Go", {"http", "server2", "go"}),
        ("Read, a FILE!", {"read", "a", "file"}),
        ("天", {"天"}),
        ("天气预报", {"天气", "气预", "预报"}),
        ("查API天气", {"查", "api", "天气"}),
        ("カタカナ 날씨", {"カタ", "タカ", "カナ", "날씨"}),
        ("Größe_é", {"größe", "é"}),
    ],
)
def test_names_and_sentences_are_split_into_words(text: str, words: set[str]) -> None:
    """B68: camelCase, snake_case, and pairs where no spaces are written."""
    assert search_tokens(text) == words


@given(texts(), texts())
def test_a_text_has_all_words_of_its_parts(one: str, other: str) -> None:
    together = search_tokens(f"{one} {other}")
    assert together == search_tokens(one) | search_tokens(other)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("read file", ["read_file", "writeFile"]),
        ("WRITE", ["writeFile"]),
        ("weather in a city", ["get_weather", "read_file", "writeFile"]),
        ("今天天气", ["query_forecast"]),
        ("mail people the weather", ["send_mail", "get_weather"]),
        ("of the project", []),
        ("nothing like it", []),
        ("", []),
    ],
)
async def test_tools_are_ranked_by_the_words_that_they_share(
    query: str, found: Sequence[str]
) -> None:
    """B68: pairs of Chinese characters hit; a word that all tools have counts for
    nothing."""
    assert await KeywordIndex(SOME).search(query, 5) == found


async def test_of_a_mixed_query_the_specific_tool_comes_first() -> None:
    """B68: what is rare weighs more than what many have."""
    many = catalogue(
        list_files="List files.",
        list_users="List users.",
        list_mails="List mails.",
        restart_server="Restart a server.",
    )
    assert (await KeywordIndex(many).search("list restart", 2))[0] == "restart_server"


async def test_one_tool_alone_can_be_found() -> None:
    assert await KeywordIndex(SOME[:1]).search("read", 5) == ["read_file"]


async def test_a_word_of_the_name_counts_twice() -> None:
    tools = catalogue(b_mail="x", a="mail", c="y")
    assert await KeywordIndex(tools).search("mail", 5) == ["b_mail", "a"]


@given(
    st.lists(
        st.tuples(st.sampled_from(WORDS), st.lists(st.sampled_from(WORDS), max_size=4)),
        unique_by=lambda each: each[0],
        min_size=1,
    ),
    st.lists(st.sampled_from(WORDS), max_size=3),
    st.integers(1, 8),
)
@trio_property
async def test_what_is_found_is_what_scores_best(
    tools: Sequence[tuple[str, Sequence[str]]], asked: Sequence[str], limit: int
) -> None:
    """The same sum, written out: twice the name's words and once the description's."""
    specs = [ToolSpec(name=name, description=" ".join(d)) for name, d in tools]

    def idf(word: str) -> float:
        having = sum(word in {name, *description} for name, description in tools)
        return math.log((max(len(tools), 2) + 1) / (having + 1))

    def score(name: str, description: Sequence[str]) -> float:
        words = set(asked)
        of_name = 2 * sum(idf(word) for word in words & {name})
        return of_name + sum(idf(word) for word in words & set(description))

    scores = {name: score(name, description) for name, description in tools}
    found = await KeywordIndex(specs).search(" ".join(asked), limit)
    best = sorted((n for n in scores if scores[n] > 0), key=lambda n: (-scores[n], n))
    assert len(found) == min(limit, len(best))
    assert [scores[n] for n in found] == pytest.approx(
        [scores[n] for n in best[:limit]]
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("file", ["read_file", "writeFile"]),
        ("^(read|send)", ["read_file", "send_mail"]),
        ("FILE$", ["read_file", "writeFile"]),
        ("e.*r", ["get_weather", "query_forecast"]),
        ("(file", []),
        ("[[file]", ["read_file", "writeFile", "get_weather"]),
        ("a{999999999999}", []),
        ("(" * 2_000, []),
        ("", ["read_file", "writeFile", "get_weather"]),
    ],
)
async def test_a_pattern_is_looked_for_in_names(
    query: str, found: Sequence[str]
) -> None:
    """B68: a pattern that is none is taken as it stands."""
    assert await RegexIndex(SOME).search(query, 3) == found


async def test_an_invalid_pattern_is_found_where_a_name_has_it() -> None:
    odd = catalogue(plain="", **{"a(b": ""})
    assert await RegexIndex(odd).search("a(b", 5) == ["a(b"]


@pytest.mark.parametrize(
    "query",
    [
        "(a+)+$",
        "(a|a)" * 30 + "$",
        "a?" * 30 + "a" * 30 + "$",
        ".*" * 20 + "!",
        r"(a*)\1\1\1b",
        "(?:(?:a*)*)*b",
    ],
)
async def test_no_pattern_holds_up_the_loop(query: str) -> None:
    names = [ToolSpec(name="a" * 60 + str(number)) for number in range(50)]
    start = time.process_time()
    await RegexIndex(names).search(query, 5)
    assert time.process_time() - start < 1


@given(st.text(alphabet="ab(|)[]{}*+?.^$\\\\1,", max_size=12))
@trio_property
async def test_any_pattern_gives_names_of_the_catalogue(query: str) -> None:
    found = await RegexIndex(SOME).search(query, 3)
    assert set(found) <= {spec.name for spec in SOME}
    assert len(found) <= 3


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("send mails", "mail_send"),
        ("forecasts for tomorrow", "weather_forecast"),
        ("taking screenshots", "browser_take_screenshot"),
        ("creating events", "calendar_create_event"),
        ("renaming", "move_file"),
        ("posting messages", "slack_post_message"),
        ("listing directories", "list_directory"),
        ("editing files", "edit_file"),
    ],
)
async def test_endings_of_english_hide_no_tool(query: str, name: str) -> None:
    """As models write: in plural, and in the form that the sentence wants."""
    index = KeywordIndex([each.spec for each in TOOLS])
    assert name in await index.search(query, 5)
