"""The page that ``python -m k2_mac.check --html`` writes.

The page refers to no other file: its plots are inline SVG.  k2 depends on no library for plots, so
this module draws them.
"""

import html
import math
from collections.abc import Sequence

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em;
       margin: 2em auto; padding: 0 1em; color: #222; background: #fff; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .2em .8em; border-bottom: 1px solid #ccc; text-align: right;
         font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
.good { color: #176b2c; } .bad { color: #b00020; font-weight: bold; }
.verdict { border-left: .3em solid #888; padding-left: 1em; }
svg text { font: 13px system-ui, sans-serif; fill: #222; }
"""
# Sizes in plots: the width of a plot, the left end of its bars, the height of a group of bars, and
# the height of a bar.
_WIDTH, _LEFT, _ROW, _BAR = 800, 300, 44, 16
_COLOURS = ("#777777", "#2f6fb3")


# {a count: what it means}
_MEANINGS = {
    "dispatches": "kernels of k2 that were given to the GPU; nothing waits for them",
    "gates": "times at which code on the CPU was about to touch memory that the GPU may still use",
    "drains": "gates for which the GPU had work since the last wait",
    "bytes copied": "what k2 copied between memory of the CPU and of mps; a run does not include"
    " the copy of its input",
}


def _escape(value) -> str:
    return html.escape(str(value))


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table as HTML.  The cells of `rows` are HTML, `head` is text."""

    def row(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{c}</{tag}>" for c in cells) + "</tr>"

    return "\n".join(
        [
            "<table>",
            row(map(_escape, head), "th"),
            *(row(cells, "td") for cells in rows),
            "</table>",
        ]
    )


def _bars(
    title: str,
    names: Sequence[str],
    labels: Sequence[str],
    values: Sequence[Sequence[tuple[float, str]]],
) -> str:
    """Returns a plot as SVG: horizontal bars on a logarithmic scale.

    Args:
      title: what the plot shows.
      names: the names of the groups, top to bottom.
      labels: the names of the bars in each group.
      values: for each group, the value and the text of each bar.
    """
    numbers = [v for group in values for v, _ in group if 0 < v < math.inf]
    low = math.floor(math.log10(min(numbers, default=1)))
    high = max(low + 1, math.ceil(math.log10(max(numbers, default=1))))
    scale = (_WIDTH - _LEFT - 110) / (high - low)  # pixels for a power of ten
    height = 60 + _ROW * len(names)
    parts = [f'<svg role="img" viewBox="0 0 {_WIDTH} {height}"><title>{_escape(title)}</title>']
    parts += [_legend(number, label) for number, label in enumerate(labels)]
    for power in range(low, high + 1):
        parts.append(_grid_line(_LEFT + scale * (power - low), height, power))
    for row, (name, group) in enumerate(zip(names, values)):
        y = 34 + _ROW * row
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 21}" text-anchor="end">{_escape(name)}</text>')
        for number, (value, text) in enumerate(group):
            width = 0.0
            if 0 < value < math.inf:
                width = max(1.0, scale * (math.log10(value) - low))
            parts.append(_bar(y + number * (_BAR + 2), width, _COLOURS[number], text))
    return "\n".join([*parts, "</svg>"])


def _legend(number: int, label: str) -> str:
    """Returns the name of the bars of a colour, as SVG."""
    x = _LEFT + 180 * number
    return (
        f'<rect x="{x}" y="8" width="12" height="12" fill="{_COLOURS[number]}"/>'
        f'<text x="{x + 18}" y="19">{_escape(label)}</text>'
    )


def _grid_line(x: float, height: int, power: int) -> str:
    """Returns the vertical line at a power of ten, and its number below the plot, as SVG."""
    return (
        f'<line x1="{x:.0f}" x2="{x:.0f}" y1="28" y2="{height - 24}" stroke="#ddd"/>'
        f'<text x="{x:.0f}" y="{height - 8}" text-anchor="middle">{10.0**power:g}</text>'
    )


def _bar(top: int, width: float, colour: str, text: str) -> str:
    """Returns a bar and the text at its right end, as SVG."""
    return (
        f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>'
        f'<text x="{_LEFT + width + 6:.1f}" y="{top + 13}">{_escape(text)}</text>'
    )


def _verdict_of(comparison) -> str:
    if comparison.ok:
        return '<span class="good">ok</span>'
    return f'<span class="bad">{_escape(comparison.error or "WRONG")}</span>'


def _comparisons(result) -> list[str]:
    rows = [
        [_escape(each.name), f"{each.difference:.1e}", f"{each.tolerance:.1e}", _verdict_of(each)]
        for each in result.comparisons
    ]
    shown = [each for each in result.comparisons if not each.error]
    return [
        f"<h2>{_escape(result.device)} against the CPU</h2>",
        "<p>The largest difference of values and gradients, relative to the "
        "largest value of each tensor.</p>",
        _html_table(["operation", "difference", "allowed", ""], rows),
        _bars(
            "difference from the CPU",
            [each.name for each in shown],
            ["allowed", "difference"],
            [
                [
                    (each.tolerance, f"{each.tolerance:.1e}"),
                    (each.difference, f"{each.difference:.1e}"),
                ]
                for each in shown
            ],
        ),
    ]


def _timings(result) -> list[str]:
    rows = [
        [
            _escape(each.name),
            f"{each.cpu * 1e3:.2f}",
            f"{each.mps * 1e3:.2f}",
            *map(str, each.counts.values()),
        ]
        for each in result.timings
    ]
    counts = result.timings[0].counts
    warning = []
    if not result.times_count:
        warning = [
            '<p class="bad">These are no times of a GPU: mps on this machine is'
            " not the GPU of a Mac.</p>"
        ]
    return [
        f"<h2>Times, {_escape(result.unit)}</h2>",
        *warning,
        "<p>Median of several runs, forward and backward.</p>",
        _html_table([result.unit, "cpu", result.device, *counts], rows),
        "<dl>",
        *(f"<dt>{_escape(name)}</dt><dd>{_escape(_MEANINGS[name])}</dd>" for name in counts),
        "</dl>",
        _bars(
            result.unit,
            [each.name for each in result.timings],
            ["cpu", result.device],
            [
                [
                    (each.cpu * 1e3, f"{each.cpu * 1e3:.2f} ms"),
                    (each.mps * 1e3, f"{each.mps * 1e3:.2f} ms"),
                ]
                for each in result.timings
            ],
        ),
    ]


def page(result) -> str:
    """Returns the page as HTML.

    Args:
      result: a k2_mac.check.Result.
    """
    facts = [
        [_escape(fact.name), _escape(fact.found), _escape(fact.wanted)] for fact in result.facts
    ]
    head = ["", "found", "needed"]
    if not any(fact.wanted for fact in result.facts):
        head, facts = head[:2], [row[:2] for row in facts]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        "<title>k2 on mps</title>",
        f"<style>{_STYLE}</style></head><body>",
        "<h1>k2 on mps</h1>",
        '<div class="verdict">',
        *(f"<p>{_escape(line)}</p>" for line in result.verdict()),
        "</div>",
        "<h2>This machine</h2>",
        _html_table(head, facts),
    ]
    if result.comparisons:
        parts += _comparisons(result)
    if result.timings:
        parts += _timings(result)
    return "\n".join([*parts, "</body></html>", ""])
