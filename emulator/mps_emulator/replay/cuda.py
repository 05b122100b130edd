"""Replays a recording on an NVIDIA GPU, with CUDA's driver API.

`python -m mps_emulator.replay prepare` makes a folder with the program replay.py,
which needs only the other files of the folder, NumPy and NVIDIA's driver:

    python FOLDER/replay.py
    compute-sanitizer --tool memcheck python FOLDER/replay.py --no-times
    compute-sanitizer --tool racecheck python FOLDER/replay.py --no-times

Each command first runs alone, on the recorded contents of its buffers, and the
program compares the results with the recorded results.  Then all commands run as
one CUDA graph, to measure the time of the whole sequence.

Exit status: 0 all results are as recorded, 1 some results differ, 3 the machine
has no usable GPU, 4 the folder cannot be replayed.
"""

import argparse
import ctypes
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from .driver import CudaError, Driver, NoGpu
from .player import CommandSequence
from .recording import Recording
from .replaying import WRONG, Times, add_options, replay

NO_GPU, UNUSABLE = 3, 4
WARMUPS, REPEATS = 3, 30

# Constants of the driver API.
_STREAM_NON_BLOCKING = 1
_CAPTURE_MODE_RELAXED = 2
_EVENT_RECORD_EXTERNAL = 1


class Gpu(Driver):
    """An NVIDIA GPU as a machine: it has the methods that player.py lists.

    Args:
      recording: the recording to replay.
      programs: for each program of the recording {"ptx": bytes, "kernels": {name: description}}.
        msl.nvptx.description() makes a description.
    """

    def __init__(self, recording: Recording, programs: Sequence[dict]):
        super().__init__()
        self._programs = programs
        self._launches = {}  # {id of a dispatch: the positional arguments of launch()}
        self._threads = {}  # {(program, kernel): the most threads of a threadgroup}
        for command in recording.commands:
            if command["kind"] == "dispatch":
                key = command["program"], command["kernel"]
                self._threads[key] = max(
                    self._threads.get(key, 0), int(np.prod(command["threadgroup"]))
                )
        self._stream = self.get("cuStreamCreate", _STREAM_NON_BLOCKING)

    def write(self, address: int, offset: int, array: np.ndarray) -> None:
        self.synchronize()
        super().write(address, offset, array)

    def copy(self, source: int, begin: int, destination: int, to: int, size: int) -> None:
        if size:
            to, begin = destination + to, source + begin
            self.call("cuMemcpyDtoDAsync_v2", to, begin, size, self._stream)

    def dispatch(self, command: dict, buffers: dict[int, int]) -> None:
        launch = self._launches.get(id(command))
        if launch is None:
            launch = self._prepare(command, buffers)
            self._launches[id(command)] = launch
        self.launch(*launch, stream=self._stream)

    def _prepare(self, command, buffers):
        """Returns the positional arguments of launch() for a dispatch."""
        kernel = self._programs[command["program"]]["kernels"][command["kernel"]]
        given = {a["index"]: a for a in command["arguments"]}
        bytes_ = command["threadgroup_bytes"]
        values = []
        shared = 0
        for kind, index in kernel["arguments"]:
            if kind == "threadgroup":
                values.append(ctypes.c_uint64(shared))
                shared += -(-bytes_[str(index)] // 16) * 16
                continue
            argument = given[index]
            if "bytes" in argument:
                content = np.frombuffer(bytes.fromhex(argument["bytes"]), np.uint8)
                address = self.allocate(len(content))
                self.write(address, 0, content)
            else:
                use = command["uses"][argument["use"]]
                address = buffers[use["buffer"]] + argument["offset"]
            values.append(ctypes.c_uint64(address))
        grid, threads = command["grid"], command["threadgroup"]
        values += [ctypes.c_uint(n) for n in grid]
        groups = [-(-all_ // each) for all_, each in zip(grid, threads)]
        ptx = self._programs[command["program"]]["ptx"]
        most_threads = self._threads[command["program"], command["kernel"]]
        function = self.kernel(ptx, kernel["entry"], most_threads)
        return function, groups, threads, values, shared

    def graph(self, steps: Sequence[Callable[[], None]], each: bool) -> Callable[[], list[float]]:
        """Makes one CUDA graph of the work that the functions `steps` launch.

        Args:
          each: True to time each step, False to time the whole graph.
        Returns:
          A function that launches the graph, waits for it, and returns times in microseconds.
        """
        marks = [self.get("cuEventCreate", 0) for _ in range(len(steps) + 1 if each else 2)]

        def mark(number):
            self.call("cuEventRecordWithFlags", marks[number], self._stream, _EVENT_RECORD_EXTERNAL)

        self.synchronize()
        self.call("cuStreamBeginCapture_v2", self._stream, _CAPTURE_MODE_RELAXED)
        mark(0)
        for number, step in enumerate(steps):
            step()
            if each:
                mark(number + 1)
        if not each:
            mark(1)
        graph = ctypes.c_void_p()
        self.call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        executable = self.get("cuGraphInstantiateWithFlags", graph, 0)

        def launch():
            self.call("cuGraphLaunch", executable, self._stream)
            self.synchronize()
            return [self._microseconds(*pair) for pair in zip(marks, marks[1:])]

        return launch

    def _microseconds(self, begin, end):
        return self.get("cuEventElapsedTime", begin, end, kind=ctypes.c_float).value * 1000

    def measure(self, sequence: CommandSequence) -> Times:
        """Measures a sequence.  replay() calls this method as `measure`."""
        steps = [step for _, step in sequence.steps]
        if not steps:
            return Times(steps=[], sequence=[0.0])
        sequence.restore()
        # A CUDA graph cannot contain compilations, or copies of argument bytes to the GPU.  So this
        # run before the capture does both.
        sequence.run()
        results = {}
        for each in (True, False):
            launch = self.graph(steps, each)
            rows = []
            for _ in range(WARMUPS + REPEATS):
                sequence.restore()
                rows.append(launch())
            results[each] = np.array(rows[WARMUPS:]).T.tolist()
        return Times(steps=results[True], sequence=results[False][0])


def main(folder: Path) -> None:
    """Replays the recording in a folder that `prepare` made, and ends the process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--no-times", action="store_true", help="compare only")
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=folder,
        help="the folder that `prepare` made; default: the folder of replay.py",
    )
    options = parser.parse_args()
    sys.exit(run(options))


def run(options: argparse.Namespace, say: Callable[[str], None] = print) -> int:
    """Replays the recording in options.folder; returns the exit status of the program."""
    try:
        recording = Recording(options.folder)
        programs = json.loads((options.folder / "kernels.json").read_text())
        for program in programs:
            program["ptx"] = (options.folder / program["ptx"]).read_bytes()
        gpu = Gpu(recording, programs)
        say(f"on {gpu.name}")
        wrong = replay(
            recording,
            gpu,
            [program["kernels"] for program in programs],
            options.tolerance,
            say,
            None if options.no_times else gpu.measure,
        )
    except NoGpu as error:
        say(f"no GPU: {error}")
        return NO_GPU
    except CudaError as error:
        say(f"CUDA: {error}")
        return WRONG
    except (OSError, ValueError) as error:
        say(f"error: {error}")
        return UNUSABLE
    return WRONG if wrong else 0
