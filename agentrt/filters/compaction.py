"""Compaction: a long conversation, shortened before it overflows the model's window.

When a request nears the window, old results of tools are left out; if that is not
enough, a model sums up the beginning; without one, or if it fails, the beginning is cut
off. When a provider says that the window overflowed, the request is shortened hard and
sent once more. Only requests change: the store keeps every message. Register it before
`normalize_filter`, and after what adds to requests: what comes later is not counted.
"""

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import trio
from attrs import Attribute, define, evolve, field, frozen

from agentrt.core.chat import ChatRequest
from agentrt.core.context import Context
from agentrt.core.errors import ContextOverflowError
from agentrt.core.history import mend
from agentrt.core.messages import Message
from agentrt.filters.base import ChatCall, Filter, Hook, hook
from agentrt.filters.shortening import (
    NOTHING,
    Shortening,
    cut,
    digest,
    empty_results,
    fit_newest,
    view,
)
from agentrt.filters.summary import Summarizer
from agentrt.models.base import ChatModel
from agentrt.models.estimate import estimate_messages, estimate_request
from agentrt.scopes import finish

__all__ = [
    "CompactionSettings",
    "InMemoryShortenings",
    "ShorteningStore",
    "compaction_filter",
]

logger = logging.getLogger(__name__)

LEAST_WINDOW: Final = 1_000
LEFT_OUT: Final = "[Earlier messages were left out.]"
FRAME_TOKENS: Final = 30
"""Around a summary: what it is called, and that something was left out."""


class ShorteningStore(Protocol):
    """What compaction remembers of conversations. It is a cache.

    `save` puts a value in place of the one before; `load` gives None for none.
    """

    async def load(self, conversation_id: str) -> Shortening | None: ...

    async def save(self, conversation_id: str, short: Shortening) -> None: ...


@define
class InMemoryShortenings:
    """Remembers so many conversations; then those go that were used least lately."""

    max_conversations: int = 1_000
    _kept: OrderedDict[str, Shortening] = field(
        factory=OrderedDict, init=False, repr=False
    )

    async def load(self, conversation_id: str) -> Shortening | None:
        await trio.lowlevel.checkpoint()
        if conversation_id in self._kept:
            self._kept.move_to_end(conversation_id)
        return self._kept.get(conversation_id)

    async def save(self, conversation_id: str, short: Shortening) -> None:
        await trio.lowlevel.checkpoint()
        self._kept[conversation_id] = short
        self._kept.move_to_end(conversation_id)
        if len(self._kept) > self.max_conversations:
            self._kept.popitem(last=False)


def _at_least(least: float) -> Callable[[Any, "Attribute[Any]", Any], None]:
    def check(_: Any, attribute: "Attribute[Any]", value: Any) -> None:
        if not value >= least:
            raise ValueError(f"{attribute.name} is {value!r}, expected {least} or more")

    return check


@frozen(kw_only=True)
class CompactionSettings:
    """When a conversation is shortened, and how far. Tokens are by our estimate."""

    trigger: float = 0.8
    """The part of the window above which a request is shortened."""

    target: float = 0.5
    """The part of the window that it then takes. The gap is how long it lasts."""

    keep_results: int = field(default=5, validator=_at_least(0))
    """The newest results of tools, which are not left out."""

    result_tokens: int = field(default=2_000, validator=_at_least(100))
    """To which those of them are cut that the model has read."""

    summary_tokens: int = field(default=2_000, validator=_at_least(100))
    """At most, and at most a tenth of the window."""

    summary_seconds: float = field(default=60.0, validator=_at_least(0))
    """After which the summarizer counts as failed."""

    max_failures: int = field(default=3, validator=_at_least(1))
    """Of the summarizer, in a row. Until then each call tries it anew, and is cut
    meanwhile; then the cut stays, and it is tried when the window fills up again."""

    def __attrs_post_init__(self) -> None:
        if not 0 < self.target < self.trigger <= 1:
            raise ValueError(
                f"target is {self.target} and trigger {self.trigger}, expected parts "
                "of the window: 0 < target < trigger <= 1"
            )


def compaction_filter(
    window: int | None,
    *,
    summarizer: ChatModel | None = None,
    store: ShorteningStore | None = None,
    settings: CompactionSettings | None = None,
) -> Filter:
    """Shorten requests that near the window, of so many tokens.

    A catalog knows windows: `compaction_filter(catalog.context_limit(model.ref))`. The
    `summarizer` is asked within a deadline, its usage is the turn's, and its failure
    never fails the turn. What is shortened stays so, byte for byte, until the window
    fills up again: an unchanged beginning costs no summary.

    Raises:
        ValueError: the window is not known, or below 1,000 tokens.
    """
    if window is None or window < LEAST_WINDOW:
        raise ValueError(
            f"window is {window}, expected the model's context limit, {LEAST_WINDOW} "
            "tokens or more"
        )
    settings = settings or CompactionSettings()
    compaction = _Compaction(
        window=window,
        settings=settings,
        store=store or InMemoryShortenings(),
        summarizer=_summarizer(summarizer, window, settings),
    )

    return Filter(name="compaction", chat=_chat_hook(compaction))


def _chat_hook(compaction: "_Compaction") -> Hook[ChatCall]:
    @hook
    async def chat(call: ChatCall) -> AsyncIterator[None]:
        whole = call.request
        call.request = await compaction.fit(whole, call.context)
        overflow: ContextOverflowError | None = None
        try:
            yield
        except ContextOverflowError as error:
            overflow = error
        if overflow is not None:
            if not call.reruns_left:
                raise overflow
            sent = estimate_messages(call.request.messages)
            shorter = await compaction.fit_hard(whole, call.context, room=sent // 2)
            if estimate_messages(shorter.messages) >= sent:
                raise overflow
            call.request = shorter
            await call.rerun()

    return chat


def _summarizer(
    model: ChatModel | None, window: int, settings: CompactionSettings
) -> Summarizer | None:
    if model is None:
        return None
    return Summarizer(
        model=model,
        tokens=min(settings.summary_tokens, window // 10),
        input_tokens=window // 2,
        message_tokens=settings.result_tokens,
        seconds=settings.summary_seconds,
    )


@frozen(kw_only=True)
class _Compaction:
    """One filter's way of shortening, for all conversations that it serves."""

    window: int
    settings: CompactionSettings
    store: ShorteningStore
    summarizer: Summarizer | None

    async def fit(self, request: ChatRequest, context: Context) -> ChatRequest:
        """The request within the window; the very same if it fits as it is."""
        fixed = estimate_request(evolve(request, messages=()))
        limit = int(self.window * self.settings.trigger) - fixed
        passing = await self._begin(request, context)
        shown = passing.shown
        if limit <= 0:
            logger.warning(
                "system prompt and tools take %d of %d tokens: no message is shortened",
                fixed,
                self.window,
            )
        elif estimate_messages(shown) > limit:
            target = int(self.window * self.settings.target) - fixed
            # Where the fixed part is beyond the target, half of what is left for
            # messages: else nearly each request would be shortened anew.
            room = target if target > 0 else limit // 2
            shown = fit_newest(await passing.shorten(room), limit)
        if shown is passing.messages:
            return request
        return evolve(request, messages=shown)

    async def fit_hard(
        self, request: ChatRequest, context: Context, *, room: int
    ) -> ChatRequest:
        """The request in so many tokens, whatever we thought that the window has."""
        passing = await self._begin(request, context)
        shown = await passing.shorten(room, hard=True)
        return evolve(request, messages=fit_newest(shown, room))

    async def _begin(self, request: ChatRequest, context: Context) -> "_Pass":
        messages = mend(request.messages)
        known = await self._load(context.conversation_id)
        about_others = evolve(NOTHING, failures=known.failures)
        short = known if known.fits(messages) else about_others
        return _Pass(self, messages, context, short)

    async def _load(self, conversation_id: str) -> Shortening:
        try:
            return await self.store.load(conversation_id) or NOTHING
        except Exception:  # a cache that fails costs a summary, and no turn
            logger.exception("what is known of %r could not be read", conversation_id)
            return NOTHING

    async def save(self, conversation_id: str, short: Shortening) -> None:
        """Remember it, if the store can."""
        try:
            await self.store.save(conversation_id, short)
        except Exception:  # as above
            logger.exception("what is known of %r could not be kept", conversation_id)


@define
class _Pass:
    """One request on its way to fit."""

    _compaction: _Compaction
    messages: Sequence[Message]
    _context: Context
    _short: Shortening

    @property
    def shown(self) -> Sequence[Message]:
        """The messages as they are shown now."""
        return self._view(self._short)

    async def shorten(self, room: int, *, hard: bool = False) -> Sequence[Message]:
        """Shorten to `room` tokens, as far as that goes, and remember it."""
        keep = 0 if hard else self._compaction.settings.keep_results
        self._short = empty_results(self.messages, self._short, keep=keep)
        longer = self._longer(room, hard=hard)
        shown = self.shown
        if longer is not None:
            shown = await self._cover(longer, stays=hard)
        about = digest(self.messages[: self._short.length])
        known = evolve(self._short, digest=about)
        conversation_id = self._context.conversation_id
        save = partial(self._compaction.save, conversation_id, known)
        await finish(save, what="keeping how a conversation was shortened")
        return shown

    def _longer(self, room: int, *, hard: bool) -> Shortening | None:
        """What more is to be covered; None if nothing is, or it is not worth it."""
        size = estimate_messages(self.shown)
        if size <= room:
            return None
        summarizer = self._compaction.summarizer
        summary = FRAME_TOKENS + (0 if summarizer is None else summarizer.tokens)
        cap = self._compaction.settings.result_tokens
        longer = cut(self.messages, self._short, room=room - summary, cap=cap)
        if longer is None or hard:
            return longer
        saved = size - estimate_messages(self._view(longer))
        return longer if saved > summary else None

    async def _cover(self, longer: Shortening, *, stays: bool) -> Sequence[Message]:
        """Put a summary in the place of what `longer` covers, or cut it off."""
        short, summarizer = self._short, self._compaction.summarizer
        failures = 0
        if summarizer is not None:
            new = self.messages[short.covered : longer.covered]
            summary = await summarizer.summarize(short.summary, new, self._context)
            if summary is not None:
                self._short = evolve(longer, summary=summary, failures=0)
                return self.shown
            failures = short.failures + 1
        kept = short.summary.removesuffix(LEFT_OUT).rstrip()
        notice = f"{kept}\n\n{LEFT_OUT}" if kept else LEFT_OUT
        without = evolve(longer, summary=notice, failures=failures)
        if stays or failures % self._compaction.settings.max_failures == 0:
            self._short = without
        else:  # for this call only: the next one may get its summary
            self._short = evolve(short, failures=failures)
        return self._view(without)

    def _view(self, short: Shortening) -> Sequence[Message]:
        cap = self._compaction.settings.result_tokens
        return view(self.messages, short, cap=cap)
