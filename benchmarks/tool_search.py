"""What a search for tools saves: prompt tokens of whole turns, by our estimate."""

from collections.abc import Sequence
from typing import Final

from agentrt.models.estimate import estimate_tools
from tests.filters.catalogue import QUESTIONS, TOOLS, Turns, compare

__all__ = ["LEAST", "measure_search", "print_search"]

LEAST: Final = 0.75
"""Part of the tokens that the search must save, over all questions."""


async def measure_search() -> Sequence[Turns]:
    """Each question, with all tools and with a search."""
    return [await compare(question) for question in QUESTIONS]


def print_search(turns: Sequence[Turns]) -> bool:
    """Print a table; whether enough is saved and every tool is found."""
    schemas = estimate_tools(tool.spec for tool in TOOLS)
    print(f"{len(TOOLS)} tools, {schemas:,} tokens of schemas; prompt tokens of a turn")
    print(f"{'all tools':>10} {'search':>8} {'saved':>6}  question")
    is_found = True
    for question, turn in zip(QUESTIONS, turns, strict=True):
        needed = [need.tool for need in question.needs]
        missing = [] if turn.found == needed else [f" NOT FOUND: {needed}"]
        is_found = is_found and not missing
        figures = f"{turn.all_tools:>10,} {turn.searched:>8,} {turn.saved:>6.0%}"
        print(f"{figures}  {question.text}{''.join(missing)}")
    before = sum(turn.all_tools for turn in turns)
    after = sum(turn.searched for turn in turns)
    saved = 1 - after / before
    is_kept = saved >= LEAST and is_found
    verdict = "kept" if is_kept else "BROKEN"
    print(f"{before:>10,} {after:>8,} {saved:>6.1%}  (at least {LEAST:.0%}: {verdict})")
    return is_kept
