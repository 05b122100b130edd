"""Runs the items of a program one after another, for a report or for a person.

A report starts such a program with the items that it shall leave out, and their verdicts.  The
program prints a line `item: NAME` before each item, and a line `item is right` after it.  The
program ends at the first item that fails.  The report then starts the program again, without the
items that have a verdict.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable

# An environment variable: {item to leave out: its verdict}, as JSON.
LEFT_OUT = "K2_MPS_REPORT_LEFT_OUT"
ITEM, ANSWER, MEASURED = "item: ", "answer: ", "measured: "
ITEM_IS_RIGHT = "item is right"
# The exit status of a program whose question cannot be answered on this machine.
NO_ANSWER = 77


def left_out() -> dict[str, str]:
    """Returns {item to leave out: its verdict}."""
    return json.loads(os.environ.get(LEFT_OUT, "{}"))


def run(items: Iterable[tuple[str, Callable[[], bool]]]) -> None:
    """Runs items until one of them fails; then ends the program with status 1.

    Args:
      items: yields (name, function).  The function returns whether the item is right.
    """
    for name, function in items:
        if name in left_out():
            continue
        print(ITEM + name, flush=True)
        if not function():
            sys.exit(1)
        print(ITEM_IS_RIGHT, flush=True)


def answer(text: str) -> None:
    """Prints the answer to an item's question, which becomes a part of the item's verdict."""
    print(ANSWER + text, flush=True)


def measured(**values: object) -> None:
    """Prints a measured thing, which gets a line of its own in the record."""
    # Names are replaced in this text, so it must not escape their letters.
    print(MEASURED + json.dumps(values, ensure_ascii=False), flush=True)
