"""The onion: what a layer may do, what it may not, and that layers close in order."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import pytest
import trio
from attrs import define, frozen
from hypothesis import given
from hypothesis import strategies as st

from agentrt.core.chat import Delta, TextDelta
from agentrt.core.context import Context
from agentrt.core.errors import FilterProtocolError
from agentrt.core.outcomes import TurnCancelled, TurnCompleted, TurnFailed, TurnPaused
from agentrt.filters.base import (
    UNSET,
    Call,
    Filter,
    Hook,
    TokenChain,
    TokenTransform,
    compile_hooks,
    hook,
)
from agentrt.testing import trio_property

CONTEXT = Context(conversation_id="c")

Words = Call[str, str]


async def echo(request: str, context: Context) -> str:
    """What lies innermost in these tests."""
    await trio.lowlevel.checkpoint()
    return f"<{request}>"


async def ask(*layers: Hook[Words], request: str = "q", inner: Any = echo) -> str:
    run: Callable[[str, Context], Any] = compile_hooks(layers, inner)
    answer: str = await run(request, CONTEXT)
    return answer


def sign(name: str) -> Hook[Words]:
    """A layer that leaves its name on both ways."""

    @hook
    async def layer(call: Words) -> AsyncIterator[None]:
        call.request += name
        yield
        call.response += name

    return layer


async def test_without_hooks_there_is_only_the_work_itself() -> None:
    assert compile_hooks([], echo) is echo
    assert await ask() == "<q>"


async def test_the_first_hook_is_the_outermost_on_both_ways() -> None:
    assert await ask(sign("a"), sign("b")) == "<qab>ba"


async def test_an_outer_layer_does_not_see_an_inner_request() -> None:
    seen = []

    @hook
    async def look(call: Words) -> AsyncIterator[None]:
        assert call.response is UNSET
        yield
        seen.append(call.request)

    await ask(look, sign("a"))
    assert seen == ["q"]


async def test_a_response_on_the_way_in_skips_the_inner_layers() -> None:
    """B23: its own after-part runs, and that of the layers around it."""

    @hook
    async def know(call: Words) -> AsyncIterator[None]:
        call.response = "known"
        yield
        call.response += "!"

    async def never(request: str, context: Context) -> str:
        raise AssertionError("the inner layers were asked")

    assert await ask(sign("a"), know, sign("b"), inner=never) == "known!a"


async def test_a_rerun_begins_with_this_layers_request() -> None:
    """X5: inner layers add what they add once to each pass, and outer ones once."""

    @hook
    async def again(call: Words) -> AsyncIterator[None]:
        yield
        call.request = "other"
        assert await call.rerun() == "<otherb>b"

    assert await ask(sign("a"), again, sign("b")) == "<otherb>ba"


async def test_reruns_are_bounded() -> None:
    """B24"""
    asked = []

    async def count(request: str, context: Context) -> str:
        await trio.lowlevel.checkpoint()
        asked.append(request)
        return "x"

    @hook
    async def forever(call: Words) -> AsyncIterator[None]:
        yield
        while True:
            await call.rerun()

    with pytest.raises(FilterProtocolError, match="used all its reruns"):
        await ask(forever, inner=count)
    assert len(asked) == 4


async def test_each_layer_has_reruns_of_its_own() -> None:
    left = []

    @hook
    async def again(call: Words) -> AsyncIterator[None]:
        yield
        await call.rerun()
        left.append(call.reruns_left)

    await ask(again, again)
    assert left == [2, 2, 2]


@pytest.mark.parametrize(
    "outcome",
    [
        TurnPaused(interrupts=(), pause_id="p"),
        TurnCancelled(reason="stop"),
        TurnFailed(message="no"),
    ],
)
async def test_a_pause_a_cancel_and_a_failure_pass_through(outcome: Any) -> None:
    """B25: after-parts run and see it; replacing it or running again is refused."""
    seen = []

    async def end(request: str, context: Context) -> Any:
        await trio.lowlevel.checkpoint()
        return outcome

    @hook
    async def meddle(call: Call[str, Any]) -> AsyncIterator[None]:
        yield
        call.response = outcome
        with pytest.raises(FilterProtocolError, match="must pass through"):
            call.response = TurnCompleted(text="fine")
        with pytest.raises(FilterProtocolError, match="must pass through"):
            await call.rerun()
        seen.append(call.response)

    run = compile_hooks([meddle, meddle], end)
    assert await run("q", CONTEXT) is outcome
    assert seen == [outcome, outcome]


async def test_an_error_of_the_inner_layers_arrives_at_the_yield() -> None:
    async def fail(request: str, context: Context) -> str:
        raise ValueError("inner")

    @hook
    async def handle(call: Words) -> AsyncIterator[None]:
        try:
            yield
        except ValueError as error:
            call.response = f"handled {error}"

    assert await ask(sign("a"), handle, inner=fail) == "handled innera"


async def test_an_error_that_is_swallowed_needs_an_answer() -> None:
    async def fail(request: str, context: Context) -> str:
        raise ValueError("inner")

    @hook
    async def swallow(call: Words) -> AsyncIterator[None]:
        with suppress(ValueError):
            yield

    with pytest.raises(FilterProtocolError, match="swallow left no response") as caught:
        await ask(swallow, inner=fail)
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_timeout_around_the_yield_needs_an_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def wait(request: str, context: Context) -> str:
        await trio.sleep_forever()
        raise AssertionError

    @hook
    async def limit(call: Words) -> AsyncIterator[None]:
        with trio.move_on_after(1):
            yield

    @hook
    async def answer(call: Words) -> AsyncIterator[None]:
        with trio.move_on_after(1) as scope:
            yield
        if scope.cancelled_caught:
            call.response = "too late"

    with pytest.raises(FilterProtocolError, match="left by a timeout"):
        await ask(limit, inner=wait)
    assert await ask(answer, inner=wait) == "too late"


async def test_a_nursery_across_the_yield_leaves_the_inner_error_plain() -> None:
    async def fail(request: str, context: Context) -> str:
        raise ValueError("inner")

    @hook
    async def beat(call: Words) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            yield
            nursery.cancel_scope.cancel()

    with pytest.raises(ValueError, match="inner"):
        await ask(beat, beat, inner=fail)
    assert await ask(beat, beat) == "<q>"


async def test_a_nursery_that_adds_an_error_of_its_own_gives_both() -> None:
    async def fail(request: str, context: Context) -> str:
        raise ValueError("inner")

    async def also() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("own")

    @hook
    async def beat(call: Words) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(also)
            await trio.testing.wait_all_tasks_blocked()
            yield

    with pytest.RaisesGroup(ValueError, KeyError):
        await ask(beat, inner=fail)


@hook
async def greedy(call: Words) -> AsyncIterator[None]:
    with suppress(BaseException):
        await trio.lowlevel.checkpoint()
    try:
        yield
    except BaseException:  # noqa: BLE001  what no hook should do
        call.response = "mine"
    with suppress(BaseException):
        await call.rerun()


@pytest.mark.parametrize("pass_", [0, 1, 2])
async def test_an_outer_cancellation_cannot_be_swallowed(pass_: int) -> None:
    """U8: nor does it turn into an error of the filter."""
    passes = 0

    async def work(request: str, context: Context) -> str:
        nonlocal passes
        passes += 1
        if passes == pass_:
            scope.cancel()
        await trio.lowlevel.checkpoint()
        return "x"

    with trio.CancelScope() as scope:
        if pass_ == 0:
            scope.cancel()
        await ask(greedy, inner=work)
    assert scope.cancelled_caught


async def test_a_hook_yields_once() -> None:
    @hook
    async def never(call: Words) -> AsyncIterator[None]:
        if call.request == "never":
            yield

    @hook
    async def twice(call: Words) -> AsyncIterator[None]:
        yield
        yield

    with pytest.raises(RuntimeError, match="didn't yield"):
        await ask(never)
    with pytest.raises(RuntimeError, match="didn't stop"):
        await ask(twice)


def test_only_an_async_generator_is_a_hook() -> None:
    async def layer(call: Words) -> None:
        pass

    wrong: Any = layer
    with pytest.raises(TypeError, match="is no async generator with one `yield`"):
        hook(wrong)


@define
class Timed:
    """A hook as a class: the same protocol."""

    call: Words

    async def __aenter__(self) -> None:
        await trio.lowlevel.checkpoint()
        self.call.request += "t"

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await trio.lowlevel.checkpoint()
        if error is None:
            self.call.response += "t"


async def without_decorator(call: Any) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("kind", ["turn", "iteration", "chat", "tool"])
@pytest.mark.parametrize("wrong", [without_decorator, "no", 5])
def test_what_is_no_hook_is_refused_with_its_filters_name(
    kind: str, wrong: Any
) -> None:
    fields: dict[str, Any] = {kind: wrong}
    words = f"the {kind} hook of filter 'mine' is .*under @hook"
    with pytest.raises(TypeError, match=words):
        Filter(name="mine", **fields)


async def test_a_class_may_be_a_hook() -> None:
    assert await ask(sign("a"), Timed, sign("b")) == "<qatb>bta"


TEMPERS = ["passes", "waits", "raises before", "raises after", "swallows", "again"]


@define
class LayerError(Exception):
    layer: int


def layer(place: int, temper: str, log: list[str]) -> Hook[Words]:
    @hook
    async def run(call: Words) -> AsyncIterator[None]:
        log.append(f"in {place}")
        try:
            if temper == "raises before":
                raise LayerError(place)
            if temper == "waits":
                await trio.sleep(1)
            try:
                yield
            except LayerError:
                if temper != "swallows":
                    raise
                call.response = "swallowed"
            if temper == "raises after":
                raise LayerError(place)
            if temper == "again" and call.reruns_left == 3:
                await call.rerun()
        finally:
            log.append(f"out {place}")

    return run


@given(
    st.lists(st.sampled_from(TEMPERS), max_size=5),
    st.floats(0, 4),
    st.booleans(),
)
@trio_property
async def test_layers_close_in_reverse_order_whatever_they_do(
    tempers: Sequence[str], seconds: float, fails: bool
) -> None:
    """Also when they raise, and when they are cancelled at any time."""
    log: list[str] = []

    async def work(request: str, context: Context) -> str:
        await trio.sleep(1)
        if fails:
            raise LayerError(-1)
        return "x"

    layers = [layer(place, temper, log) for place, temper in enumerate(tempers)]
    with trio.move_on_after(seconds):
        with suppress(LayerError):
            await ask(*layers, inner=work)
    stack: list[str] = []
    for entry in log:
        way, _, place = entry.partition(" ")
        if way == "in":
            stack.append(place)
        else:
            assert stack.pop() == place
    assert stack == []


@frozen
class Hold:
    """A transform that holds back a number of deltas, and gives them joined."""

    size: int
    held: list[str]

    def feed(self, delta: Delta) -> Sequence[Delta]:
        assert isinstance(delta, TextDelta)
        self.held.append(delta.text)
        return self.finish() if len(self.held) >= self.size else []

    def finish(self) -> Sequence[Delta]:
        text = "".join(self.held)
        self.held.clear()
        return [TextDelta(text=text)] if text else []


def words(deltas: Sequence[Delta]) -> Sequence[str]:
    return [delta.text for delta in deltas if isinstance(delta, TextDelta)]


@given(
    st.lists(st.text(min_size=1, max_size=3)),
    st.lists(st.integers(1, 4), max_size=3),
)
def test_transforms_that_hold_back_lose_nothing(
    texts: Sequence[str], sizes: Sequence[int]
) -> None:
    """B30"""
    chain = TokenChain([Hold(size, []) for size in sizes])
    got = [out for text in texts for out in chain.feed(TextDelta(text=text))]
    got += chain.finish()
    assert "".join(words(got)) == "".join(texts)


def test_a_batch_of_three_over_seven_tokens_gives_three_three_one() -> None:
    """B30"""
    chain = TokenChain([Hold(3, [])])
    got = [out for text in "abcdefg" for out in chain.feed(TextDelta(text=text))]
    assert words(got) == ["abc", "def"]
    assert words(list(chain.finish())) == ["g"]


@frozen
class Mark:
    """A transform that signs what passes, and says goodbye."""

    sign: str

    def feed(self, delta: Delta) -> Sequence[Delta]:
        assert isinstance(delta, TextDelta)
        return [TextDelta(text=delta.text + self.sign)]

    def finish(self) -> Sequence[Delta]:
        return [TextDelta(text=f"end{self.sign}")]


def test_what_one_gives_at_the_end_goes_through_the_ones_after_it() -> None:
    """B30: order."""
    first: TokenTransform = Mark("1")
    chain = TokenChain([first, Mark("2")])
    assert words(list(chain.feed(TextDelta(text="x")))) == ["x12"]
    assert words(list(chain.finish())) == ["end12", "end2"]
