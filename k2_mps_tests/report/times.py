"""Times k2's operations, as k2_mps_tests.benchmarks.bench does, and survives each operation.

    .venv/bin/python -m k2_mps_tests.report.times SIZE...

A size is "utterances,frames,symbols".  An item is an operation with a size in a place.
"""

import sys

from k2_mps_tests import ending
from k2_mps_tests.benchmarks import bench
from k2_mps_tests.report import items

_REPEATS = 5


def _time(name, function, size, place):
    device, who = bench.PLACES[place]
    with bench.forced(who):
        row = {"operation": name, "size": list(size), "place": place}
        taken = bench.timings(function, device, _REPEATS)
        row["gpu_milliseconds"] = taken.pop("gpu_milliseconds", None)
        row["milliseconds"] = {
            "min": taken["least"] * 1e3,
            "median": taken["seconds"] * 1e3,
            "max": taken["most"] * 1e3,
        }
        if device == "mps":
            row.update(bench.commands(function))
    items.measured(**row)
    return True


def _items(sizes):
    for size in [(), *sizes]:
        for place in bench.places():
            device, who = bench.PLACES[place]
            if not size and place == "mps-host":
                continue  # The basic operations do not depend on the place.
            with bench.forced(who):
                timed = bench.operations(size, device) if size else bench.basics(device)
                for name, function in timed:
                    yield (
                        f"{name}, {','.join(map(str, size))}, {place}",
                        lambda name=name, function=function, size=size, place=place: _time(
                            name, function, size, place
                        ),
                    )


def main():
    if bench.where()["mps"] == "emulated":
        print("mps is emulated: these are no times of a GPU", flush=True)
    items.run(_items([tuple(map(int, word.split(","))) for word in sys.argv[1:]]))
    return 0


if __name__ == "__main__":
    ending.run(main)
