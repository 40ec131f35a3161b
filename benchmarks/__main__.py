"""`python -m benchmarks [ROUNDS]` prints the table; with a case's name, runs that."""

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from typing import Final

import trio

from benchmarks.cases import CASES, Case
from benchmarks.stalled import LIMIT, stalled_ratio
from benchmarks.tool_search import measure_search, print_search

ROUNDS: Final = 5
STALLED: Final = "stalled"
TOOL_SEARCH: Final = "tool_search"


def measure(case: Case) -> float:
    """CPU microseconds for each unit, in this process, after a warm-up."""
    trio.run(case.run, max(1, case.units // 10))
    start = time.process_time()
    trio.run(case.run, case.units)
    return (time.process_time() - start) / case.units * 1e6


def measure_apart(case: Case) -> float:
    """The same in a process of its own."""
    return float(_apart(case.name))


def _apart(name: str) -> str:
    command = [sys.executable, "-m", "benchmarks", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


def report(rounds: int) -> None:
    """Measure all cases, interleaved, and print medians and ratios."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for case in CASES:
            found[case.name].append(measure_apart(case))
    print(f"CPU time, {rounds} rounds, median (min..max); ratios round by round\n")
    print(f"{'case':26} {'us per unit':>32}  {'unit':8} {'x its floor':>12}")
    for case in CASES:
        times = found[case.name]
        middle = statistics.median(times)
        spread = f"{middle:,.0f} ({min(times):,.0f}..{max(times):,.0f})"
        ratio = ""
        if case.floor:
            floors = found[case.floor]
            ratios = [mine / floor for mine, floor in zip(times, floors, strict=True)]
            ratio = f"{statistics.median(ratios):.2f}"
        print(f"{case.name:26} {spread:>32}  {case.unit:8} {ratio:>12}")
    factor = float(_apart(STALLED))
    verdict = "kept" if factor <= LIMIT else "BROKEN"
    print(
        f"\na WebSocket client that never reads slows a run by a factor of {factor:.3f}"
        f" (at most {LIMIT}: {verdict})\n"
    )
    is_saving = print_search(trio.run(measure_search))
    if factor > LIMIT or not is_saving:
        raise SystemExit(1)


def main() -> None:
    """Run one case, or all of them."""
    by_name = {case.name: case for case in CASES}
    argument = sys.argv[1] if len(sys.argv) > 1 else str(ROUNDS)
    if argument == STALLED:
        print(trio.run(stalled_ratio))
    elif argument == TOOL_SEARCH:
        if not print_search(trio.run(measure_search)):
            raise SystemExit(1)
    elif argument in by_name:
        print(measure(by_name[argument]))
    else:
        report(int(argument))


main()
