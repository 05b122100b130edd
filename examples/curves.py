"""Draws the loss curves of several runs into one picture.

The program prints the largest relative difference of the losses from those of the first run.

    python examples/curves.py build/ctc-cpu build/ctc-mps --output build/curves.png
"""

import argparse
import json
from pathlib import Path

import matplotlib
import numpy
from common import training

matplotlib.use("Agg")  # no window
from matplotlib import pyplot  # noqa: E402


def draw(folders: list[Path], output: Path) -> float:
    """Draws the curves, and the relative difference of each curve from the first curve.

    Returns:
      The largest relative difference.
    """
    runs = [json.loads((folder / training.CURVE).read_text()) for folder in folders]
    figure, (upper, lower) = pyplot.subplots(2, sharex=True, figsize=(8, 6), height_ratios=(3, 1))
    first, largest = runs[0]["losses"], 0.0
    for number, run in enumerate(runs):
        upper.plot(run["losses"], label=run["device"], linestyle="-" if number == 0 else "--")
        if number == 0:
            continue
        differences = [abs(a - b) / abs(a) for a, b in zip(first, run["losses"])]
        largest = float(numpy.max([largest, *differences]))  # Python's max() could drop a NaN.
        lower.plot(differences, color=f"C{number}")  # as in the upper plot
    upper.set_ylabel("loss per phone")
    upper.legend()
    lower.set_ylabel(f"relative difference\nto {runs[0]['device']}")
    lower.set_xlabel("step")
    lower.set_yscale("symlog", linthresh=1e-8)
    figure.tight_layout()
    figure.savefig(output, dpi=150)
    pyplot.close(figure)
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "folder", type=Path, nargs="+", help="where ctc.py or transducer.py has trained"
    )
    parser.add_argument("--output", type=Path, default=Path("curves.png"))
    options = parser.parse_args()
    largest = draw(options.folder, options.output)
    print(f"{options.output}: largest relative difference {largest:.1e}")


if __name__ == "__main__":
    main()
