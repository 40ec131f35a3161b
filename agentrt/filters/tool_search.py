"""Tool search: show the model a search first, and tools when it has found them.

Many tools are many tokens, in every call of the model. With this filter it sees one
tool that searches, and what it found from its next message on. Worth it from some 5,000
tokens of schemas; below, the search costs more than it saves. A provider's prompt cache
starts anew whenever something is found.

The filter brings the search tool, narrows what each request offers, and keeps what was
found in a slot: for the turn, over pauses. A call of a tool that is not shown the loop
refuses.
"""

from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, Final, TypeAlias

import trio
from attrs import define, evolve, field

from agentrt.core.chat import ChatRequest, ToolSpec
from agentrt.core.context import Context, Slot
from agentrt.filters.base import ChatCall, Filter, Hook, ToolUse, hook
from agentrt.tools.base import Tool, ToolResult
from agentrt.tools.index import KeywordIndex, ToolIndex

__all__ = ["FOUND_KEY", "SEARCH_TOOL", "tool_search_filter"]

SEARCH_TOOL: Final = "search_tools"

FOUND_KEY: Final = "agentrt/tool_search/found"
"""The slot: a sorted list of names."""

DESCRIPTION: Final = (
    "Find tools. Most tools are hidden until you search for them. One search finds "
    "tools for one ability: make a search of its own for each ability that the task "
    "needs, such as 'read a file' and 'send a message'; several at once are fine. You "
    "can call what was found from your next message on."
)
PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "The one ability that you need, in a few words.",
        }
    },
    "required": ["query"],
}
NOTHING: Final = (
    "No tool fits {query!r}. Search again in other words: what is done and to what, as "
    "in 'delete file'. If the task needs several abilities, search for each by itself."
)
NO_CATALOGUE: Final = "The tools are not known yet: search again."

MAX_CONVERSATIONS: Final = 1_000
"""Whose catalogue is remembered until they search. When full, the one that asked least
lately goes: its search is told to try again."""

MAX_INDEXES: Final = 16

MakeIndex: TypeAlias = Callable[[Sequence[ToolSpec]], ToolIndex]


def tool_search_filter(
    index: MakeIndex | None = None,
    *,
    limit: int = 5,
    always: Collection[str] = (),
) -> Filter:
    """Show the model a search tool first, and what it found from the next round on.

    `index` makes an index of a catalogue; None is `KeywordIndex`. A search finds at
    most `limit` tools. Those in `always` are shown without a search; names that there
    are no tools of are ignored. Register it after filters that change the tools.

    Raises:
        ValueError: `limit` is below 1, or `always` is a text and no list of names.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}, expected 1 or more tools a search")
    if isinstance(always, str):
        raise ValueError(f"always is {always!r}, expected names: [{always!r}]")
    search = _Search(index or KeywordIndex, limit)
    search_tool = Tool(
        name=SEARCH_TOOL,
        description=DESCRIPTION,
        parameters=PARAMETERS,
        run=search.run,
    )
    return Filter(
        name="tool_search",
        chat=_chat_hook(search, frozenset(always)),
        tool=_tool_hook(search),
        tools=[search_tool],
        slots={FOUND_KEY: Slot(reduce=_union, init=())},
    )


def _chat_hook(search: "_Search", always: Collection[str]) -> Hook[ChatCall]:
    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        call.request = _narrow(call, always, search)
        yield

    return chat


def _tool_hook(search: "_Search") -> Hook[ToolUse]:
    @hook
    async def tool(call: ToolUse) -> AsyncIterator[None]:
        if call.request.name != SEARCH_TOOL:
            yield
            return
        found: list[str] = []
        noting = partial(search.run, found=found)
        call.request = evolve(call.request, tool=evolve(call.request.tool, run=noting))
        yield
        if found and not call.response.is_error:
            writes = {**call.response.writes, FOUND_KEY: found}
            call.response = evolve(call.response, writes=writes)

    return tool


def _union(known: Iterable[str], found: Iterable[str]) -> Sequence[str]:
    return sorted({*known, *found})


def _narrow(call: ChatCall, always: Collection[str], search: "_Search") -> ChatRequest:
    """The request with the search tool, what is always shown, and what was found."""
    request = call.request
    own = [spec for spec in request.tools if spec.name == SEARCH_TOOL]
    catalogue = [spec for spec in request.tools if spec.name != SEARCH_TOOL]
    if not own or not catalogue:
        return request
    search.learn(call.context.conversation_id, tuple(catalogue))
    found = call.context.values.get(FOUND_KEY, ())
    shown = {*always, *found, request.tool_choice}
    tools = [*own, *(spec for spec in catalogue if spec.name in shown)]
    return evolve(request, tools=tools)


@define
class _Search:
    """The search of one filter, for all conversations that it serves."""

    _make: MakeIndex
    _limit: int
    _indexes: list[tuple[Sequence[ToolSpec], ToolIndex]] = field(
        factory=list, init=False
    )
    """Those used last, with their catalogues; the newest last."""

    _by_conversation: OrderedDict[str, tuple[ToolIndex, Mapping[str, ToolSpec]]] = (
        field(factory=OrderedDict, init=False)
    )

    def learn(self, conversation_id: str, catalogue: Sequence[ToolSpec]) -> None:
        """What a search in this conversation will look through."""
        by_name = {spec.name: spec for spec in catalogue}
        self._by_conversation[conversation_id] = (self._index(catalogue), by_name)
        self._by_conversation.move_to_end(conversation_id)
        if len(self._by_conversation) > MAX_CONVERSATIONS:
            self._by_conversation.popitem(last=False)

    async def run(
        self,
        arguments: Mapping[str, Any],
        context: Context,
        found: list[str] | None = None,
    ) -> ToolResult:
        """Search, and note the names in `found`."""
        known = self._by_conversation.get(context.conversation_id)
        if known is None:
            await trio.lowlevel.checkpoint()
            return ToolResult(content=NO_CATALOGUE)
        index, catalogue = known
        query = str(arguments["query"])
        names = await index.search(query, self._limit)
        hits = [catalogue[name] for name in names if name in catalogue][: self._limit]
        if found is not None:
            found.extend(spec.name for spec in hits)
        return ToolResult(content=_told(query, hits))

    def _index(self, catalogue: Sequence[ToolSpec]) -> ToolIndex:
        for place, (known, index) in enumerate(self._indexes):
            if known == catalogue:
                self._indexes.append(self._indexes.pop(place))
                return index
        made = self._make(catalogue)
        self._indexes.append((catalogue, made))
        del self._indexes[:-MAX_INDEXES]
        return made


def _told(query: str, hits: Sequence[ToolSpec]) -> str:
    """What the model reads of a search. The schemas come with its next request."""
    if not hits:
        return NOTHING.format(query=query[:200])
    names = ", ".join(spec.name for spec in hits)
    return f"Found, and yours to call from now on: {names}."
