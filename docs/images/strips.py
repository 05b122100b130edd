"""Draws strips.svg: strips, chunks, rounds and bands of mutual_information.

.venv/bin/python docs/images/strips.py
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from k2_mps_tests.kernels.sources import enumerators  # noqa: E402

SIZES = enumerators("mutual_information.h")
COLUMNS, ROWS, LAG = SIZES["kMiColumns"], SIZES["kMiRows"], SIZES["kMiMaxLag"]
PIXELS = 4  # the width of a column
CHUNKS, NOW = 15, 12  # the columns of the lattice, and the round in the picture
LEFT, TOP, HEIGHT = 90, 56, 84  # the rows of the lattice, and of a strip
DONE, DOING, FETCH, DRAIN = "#e3f2e1", "#f5b94d", "#dceaf7", "#f7e0dc"
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#222}"
    ".s{font-size:12px;fill:#555}.m{text-anchor:middle}"
)


def text(x: float, y: float, content: str, kind: str = "") -> str:
    return f'<text{kind and f" class={kind!r}"} x="{x:g}" y="{y:g}">{content}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, content: str = "") -> str:
    shape = (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'fill="{fill}" stroke="#666"/>'
    )
    return shape + (content and text(x + width / 2, y + height / 2 + 4, content, "m s"))


def strips():
    """One band: each lane is a column behind the lane above it."""
    chunk, lean = PIXELS * COLUMNS, PIXELS * (ROWS - 1)
    right = LEFT + CHUNKS * chunk
    yield text(20, 24, f"In round {NOW} every strip of a band does one chunk.")
    yield text(LEFT, TOP - 10, "frames t", "s")
    frame = f"M{LEFT} {TOP}H{right}V{TOP + 2 * HEIGHT + 6}H{LEFT}z"
    yield f'<clipPath id="c"><path d="{frame}"/></clipPath>'
    for strip in range(2):
        y = TOP + strip * (HEIGHT + 6)
        yield text(20, y + 36, f"strip {strip}")
        yield text(20, y + 54, f"{ROWS} rows s", "s")
        yield '<g clip-path="url(#c)">'
        for number in range(CHUNKS + lean // chunk + 1):
            when = number + strip * LAG
            fill = DOING if when == NOW else DONE if when < NOW else "#fff"
            x = LEFT + number * chunk
            path = f"M{x} {y}h{chunk}l{-lean} {HEIGHT}h{-chunk}z"
            yield f'<path d="{path}" fill="{fill}" stroke="#666"/>'
            yield text(x + (chunk - lean) / 2, y + HEIGHT / 2 + 4, str(when), "m s")
        yield "</g>"
        yield box(LEFT, y, right - LEFT, HEIGHT, "none")
    for y, line in enumerate(
        (
            "A chunk leans, since a lane needs",
            "what the lane above computed in",
            "the step before. The number is its",
            f"round: strip 1 is {LAG} rounds behind.",
        )
    ):
        yield text(right + 12, TOP + 40 + 18 * y, line, "s")


def roles(top: int):
    """The roles of the simdgroups of one strip."""
    yield text(
        20, top, "A strip has a chain and two movers, which take turns. A barrier ends each round."
    )
    for row, name in enumerate(("mover 0", "chain", "mover 1")):
        yield text(20, top + 48 + 34 * row, name)
    for column in range(5):
        n, x = NOW + column, LEFT + 120 * column
        yield text(x + 60, top + 24, f"round {n}", "m s")
        moves = (("Fetch", n + 1, FETCH), ("Drain", n - 1, DRAIN))
        first, second = moves if n % 2 == 0 else moves[::-1]
        for row, (what, chunk, fill) in enumerate((first, ("Chain", n, DOING), second)):
            yield box(x, top + 30 + 34 * row, 120, 28, fill, f"{what} chunk {chunk}")


def bands(top: int):
    """The dispatches of a sequence of three bands."""
    yield text(20, top, "A dispatch does some rounds of each band whose input is there.")
    for band in range(3):
        y = top + 26 + 34 * band
        yield text(20, y + 19, f"band {band}")
        for part in range(4):
            dispatch = part + 2 * band
            x = LEFT + 75 * dispatch
            yield box(x, y, 75, 28, DOING if dispatch == 4 else DONE, f"dispatch {dispatch}")


def main():
    height = TOP + 2 * HEIGHT + 345
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" role="img">',
        "<title>Strips, chunks, rounds and bands of a lattice</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="800" height="{height}" fill="#fff"/>',
        *strips(),
        *roles(TOP + 2 * HEIGHT + 50),
        *bands(TOP + 2 * HEIGHT + 205),
        "</svg>",
    ]
    (HERE / "strips.svg").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
