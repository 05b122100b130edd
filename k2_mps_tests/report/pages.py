"""Makes the text and the page of a report from its record."""

import collections
import html
import json

from k2_mps_tests.report.record import BAD, Record

_SHOWN = 4_000  # characters of an output that the text shows

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em }
table { border-collapse: collapse } td, th { padding: .15em .8em .15em 0; text-align: left;
vertical-align: top } pre { background: #8882; overflow: auto; padding: .6em; max-height: 30em }
.ok { color: #188038 } .wrong, .crashed, .hung { color: #c5221f; font-weight: bold }
"""


def _by_step(record: Record) -> dict[str, list[dict]]:
    steps: dict[str, list[dict]] = {}
    for (step, _), line in record.verdicts.items():
        steps.setdefault(step, []).append(line)
    return steps


def counts(record: Record) -> str:
    """Returns how many items have each verdict."""
    counted = collections.Counter(line["verdict"] for line in record.verdicts.values())
    return ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common())


def text(record: Record, title: str) -> str:
    """Returns the report as text."""
    lines = [title, counts(record), ""]
    bad = list(record.bad())
    if bad:
        lines.append("== what is not right")
        for line in bad:
            lines += [f"{line['verdict']}: {line['step']}: {line['item']}"]
            lines += ["    " + each for each in line.get("why", "").splitlines()]
    answers = [line for line in record.verdicts.values() if "answer" in line]
    if answers:
        lines += ["", "== answers"]
        lines += [f"{line['item']}: {line['answer']}" for line in answers]
    for step, lines_of_step in _by_step(record).items():
        lines += ["", f"== {step}"]
        for line in lines_of_step:
            lines.append(
                f"{line['verdict']:<11} {line.get('seconds', 0):8.1f} s  {line['item']}"
                + (f": {line['why']}" if line["verdict"] == "not run" else "")
            )
        for line in record.measured:
            if line["step"] == step:
                values = ", ".join(f"{key} {value}" for key, value in line["measured"].items())
                lines.append(f"    {line['item']}: {' '.join(values.split())}")
    lines += ["", "== output of what is not right"]
    for line in bad:
        output = line.get("output", "")
        if len(output) > _SHOWN:
            output = f"{output[: _SHOWN // 2]}\n[...]\n{output[-_SHOWN // 2 :]}"
        lines += ["", f"-- {line['step']}: {line['item']}", f"$ {line.get('command', '')}", output]
    return "\n".join(lines) + "\n"


def page(record: Record, title: str) -> str:
    """Returns the report as HTML, with the whole outputs."""
    parts = [
        "<!doctype html><meta charset=utf-8><title>k2-mps on a machine</title>",
        f"<style>{_STYLE}</style><h1>k2-mps on a machine</h1>",
        f"<p>{html.escape(title)}<p>{html.escape(counts(record))}",
    ]
    for step, lines_of_step in _by_step(record).items():
        parts.append(f"<h2>{html.escape(step)}</h2><table>")
        for line in lines_of_step:
            verdict = line["verdict"]
            open_it = " open" if verdict in BAD else ""
            more = "\n".join(filter(None, (line.get("why"), line.get("output"))))
            details = ""
            if more or line.get("command"):
                shown = html.escape(f"$ {line.get('command', '')}\n{more}")
                details = f"<details{open_it}><summary>output</summary><pre>{shown}</pre></details>"
            parts.append(
                f"<tr><td class='{verdict.split()[0]}'>{html.escape(verdict)}"
                f"<td>{line.get('seconds', 0):.1f} s<td>{html.escape(line['item'])}"
                f"<td>{html.escape(line.get('answer', ''))}{details}"
            )
        parts.append("</table>")
        measured = [line for line in record.measured if line["step"] == step]
        if measured:
            parts.append("<details><summary>measured</summary><table>")
            for line in measured:
                values = html.escape(json.dumps(line["measured"]))
                parts.append(f"<tr><td>{html.escape(line['item'])}<td>{values}")
            parts.append("</table></details>")
    return "\n".join(parts) + "\n"
