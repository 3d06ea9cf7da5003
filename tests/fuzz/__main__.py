"""Fuzz for as long as wanted, and report counts: ``python -m tests.fuzz --cases 3000 --seed 1 constructors streams``.

Each target runs in a process of its own, so that a crash is a failure like any other, with the seed that leads to it.
"""

import argparse
import multiprocessing
import sys
import time

from tests.fuzz.runner import TARGETS, in_a_process


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Fuzz the targets named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--cases", type=int, default=3500, help="cases of each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--as-found", action="store_true", help="do not look for smaller cases of a failure")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(TARGETS):
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    failed = False
    for target in arguments.targets:
        start = time.monotonic()
        answers, sending = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("spawn")
        passed = target, arguments.cases, arguments.seed, not arguments.as_found, sending
        process = context.Process(target=in_a_process, args=passed)
        process.start()
        process.join()
        took = f"{time.monotonic() - start:.0f} s"
        if process.exitcode == 0:
            outcomes = answers.recv()
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
            say(f"{target}: {outcomes.total()} cases, seed {arguments.seed}: {counts}; 0 failures; {took}")
        else:
            failed = True
            say(f"{target}: FAILED with exit code {process.exitcode}, seed {arguments.seed}; {took}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
