#!/usr/bin/env python3
"""Replays a recording on an NVIDIA GPU, by CUDA's driver API.

`python -m mps_emulator.replay prepare` copies this file into its folder as
replay.py; there it needs NumPy, a driver and nothing else:

    python FOLDER/replay.py
    compute-sanitizer --tool memcheck python FOLDER/replay.py --no-times
    compute-sanitizer --tool racecheck python FOLDER/replay.py --no-times

Each command first runs alone, from the recorded contents of its buffers, and
its results are compared with the recorded ones.  Then all commands run as one
CUDA graph, whose time is that of the whole sequence.

Exit status: 0 all results are as recorded, 1 some differ, 3 no GPU, 4 the folder
cannot be replayed.
"""

import argparse
import ctypes
import json
import sys
from pathlib import Path

import numpy as np

try:
    from . import player
except ImportError:  # copied, with the player beside it
    import player

NO_GPU, UNUSABLE = 3, 4
WARMUPS = 3

# Constants of the driver API.
_JIT_THREADS_PER_BLOCK = 1
_JIT_ERROR_LOG_BUFFER = 5
_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6
_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0
_STREAM_NON_BLOCKING = 1
_CAPTURE_MODE_RELAXED = 2
_EVENT_RECORD_EXTERNAL = 1


class NoGpu(Exception):
    """The machine has no GPU that CUDA can use; the text gives the reason."""


class CudaError(Exception):
    """A call of the driver failed."""


class Driver:
    """The first GPU of this machine.

    Attributes:
      name: the name of the GPU.
    Raises:
      NoGpu: the machine has no usable GPU.
    """

    def __init__(self):
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoGpu(f"NVIDIA's driver is not installed ({error})")
        try:
            self.call("cuInit", 0)
            device = ctypes.c_int()
            self.call("cuDeviceGet", ctypes.byref(device), 0)
        except CudaError as error:
            raise NoGpu(str(error))
        name = ctypes.create_string_buffer(100)
        self.call("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode()
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        """Calls a function of the driver; raises CudaError."""
        error = getattr(self._cuda, name)(*arguments)
        if error:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(error, ctypes.byref(text))
            raise CudaError("{}: {}".format(name, (text.value or b"error %d" % error).decode()))

    def load(self, ptx, threads=None):
        """Compiles PTX, a bytes object, to a module.

        threads: limit the registers so that a block can have so many threads.
        """
        module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(8192)
        options = [
            (_JIT_ERROR_LOG_BUFFER, ctypes.addressof(log)),
            (_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, len(log)),
        ]
        if threads is not None:
            options.append((_JIT_THREADS_PER_BLOCK, threads))
        names = (ctypes.c_int * len(options))(*[name for name, _ in options])
        # The driver takes a number in place of a pointer to it.
        values = (ctypes.c_void_p * len(options))(*[v for _, v in options])
        try:
            self.call(
                "cuModuleLoadDataEx", ctypes.byref(module), ptx + b"\0", len(options), names, values
            )
        except CudaError as error:
            raise CudaError(f"{error}\n{log.value.decode()}")
        return module

    def function(self, module, entry):
        """The kernel of a module with this entry."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        return function

    def most_threads(self, function):
        """The largest number of threads in a block of a kernel."""
        value = ctypes.c_int()
        self.call(
            "cuFuncGetAttribute",
            ctypes.byref(value),
            _FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            function,
        )
        return value.value

    def allocate(self, size):
        """Allocates memory of the GPU; returns its address."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address):
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address, offset, array):
        """Copies an array to the GPU's memory."""
        array = np.ascontiguousarray(array)
        if array.nbytes:
            self.call(
                "cuMemcpyHtoD_v2",
                ctypes.c_uint64(address + offset),
                array.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_size_t(array.nbytes),
            )

    def read(self, address, size):
        """Waits for the GPU; returns the bytes at an address."""
        self.synchronize()
        array = np.empty(size, np.uint8)
        if size:
            self.call(
                "cuMemcpyDtoH_v2",
                array.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_uint64(address),
                ctypes.c_size_t(size),
            )
        return array

    def launch(self, function, groups, threads, values, shared=0, stream=None):
        """Launches a kernel.

        Args:
          groups, threads: the sizes of the grid in blocks and of a block in threads,
            three numbers each.
          values: the arguments, ctypes objects.
          shared: the size of dynamic shared memory, in bytes.
        """
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        self.call(
            "cuLaunchKernel",
            function,
            *map(ctypes.c_uint, groups),
            *map(ctypes.c_uint, threads),
            ctypes.c_uint(shared),
            stream,
            pointers,
            None,
        )

    def synchronize(self):
        """Waits for the GPU."""
        self.call("cuCtxSynchronize")


class Gpu(Driver):
    """An NVIDIA GPU as a machine for player.Player.

    Args:
      recording: the recording to replay.
      programs: for each program of the recording {"ptx": bytes, "kernels": {name:
        msl.nvptx.description()}}.
    """

    def __init__(self, recording, programs):
        super().__init__()
        self._programs = programs
        self._modules = {}
        self._launches = {}
        self._threads = {}
        for command in recording.commands:
            if command["kind"] == "dispatch":
                key = command["program"], command["kernel"]
                self._threads[key] = max(
                    self._threads.get(key, 0), int(np.prod(command["threadgroup"]))
                )
        self._stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self._stream), _STREAM_NON_BLOCKING)

    def write(self, address, offset, array):
        self.synchronize()
        super().write(address, offset, array)

    def copy(self, source, begin, destination, to, size):
        if size:
            self.call(
                "cuMemcpyDtoDAsync_v2",
                ctypes.c_uint64(destination + to),
                ctypes.c_uint64(source + begin),
                ctypes.c_size_t(size),
                self._stream,
            )

    def fill(self, address, offset, size, value):
        if size:
            self.call(
                "cuMemsetD8Async",
                ctypes.c_uint64(address + offset),
                ctypes.c_ubyte(value),
                ctypes.c_size_t(size),
                self._stream,
            )

    def dispatch(self, command, buffers):
        launch = self._launches.get(id(command))
        if launch is None:
            launch = self._prepare(command, buffers)
            self._launches[id(command)] = launch
        self.launch(*launch, stream=self._stream)

    def _prepare(self, command, buffers):
        """The arguments of launch() for a dispatch."""
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
        return self._function(command, kernel), groups, threads, values, shared

    def _function(self, command, kernel):
        program = command["program"]
        ptx = self._programs[program]["ptx"]
        if program not in self._modules:
            self._modules[program] = self.load(ptx)
        function = self.function(self._modules[program], kernel["entry"])
        threads = self._threads[program, command["kernel"]]
        if self.most_threads(function) < threads:
            # The function uses too many registers for so many threads.
            function = self.function(self.load(ptx, threads), kernel["entry"])
        return function

    def graph(self, steps, each):
        """Makes one CUDA graph of the work that the functions `steps` launch.

        each: whether to time each step, instead of the whole graph.
        Returns a function that launches the graph, waits, and returns the times in
        microseconds.
        """
        marks = [self._event() for _ in range(len(steps) + 1 if each else 2)]

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
        executable = ctypes.c_void_p()
        self.call(
            "cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0)
        )

        def launch():
            self.call("cuGraphLaunch", executable, self._stream)
            self.synchronize()
            return [self._microseconds(*pair) for pair in zip(marks, marks[1:])]

        return launch

    def _event(self):
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 0)
        return event

    def _microseconds(self, begin, end):
        milliseconds = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(milliseconds), begin, end)
        return milliseconds.value * 1000

    def measure(self, sequence, repeats):
        """The argument `measure` of player.replay()."""
        steps = [step for _, step in sequence.steps]
        if not steps:
            return {"steps": [], "sequence": [0.0]}
        sequence.restore()
        sequence.run()  # compiles the kernels and uploads data outside of tensors
        results = {}
        for each in (True, False):
            launch = self.graph(steps, each)
            rows = []
            for _ in range(WARMUPS + repeats):
                sequence.restore()
                rows.append(launch())
            results[each] = np.array(rows[WARMUPS:]).T.tolist()
        return {"steps": results[True], "sequence": results[False][0]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    player.add_options(parser)
    parser.add_argument(
        "--repeats", type=int, default=30, help="of the sequence, for the times (default: 30)"
    )
    parser.add_argument("--no-times", action="store_true", help="compare only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the results, to be written")
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(__file__).resolve().parent,
        help="the folder that `prepare` made; default: that of this file",
    )
    options = parser.parse_args()
    sys.exit(run(options))


def run(options, say=print):
    """Replays options.folder; returns an exit status."""
    try:
        recording = player.Recording(options.folder)
        programs = json.loads((options.folder / "kernels.json").read_text())
        for program in programs:
            program["ptx"] = (options.folder / program["ptx"]).read_bytes()
        gpu = Gpu(recording, programs)
        say(f"on {gpu.name}")
        result = player.replay(
            recording,
            gpu,
            [program["kernels"] for program in programs],
            options.tolerance,
            say,
            None if options.no_times else lambda sequence: gpu.measure(sequence, options.repeats),
        )
    except NoGpu as error:
        say(f"no GPU: {error}")
        return NO_GPU
    except CudaError as error:
        say(f"CUDA: {error}")
        return player.WRONG
    except (OSError, ValueError) as error:
        say(f"error: {error}")
        return UNUSABLE
    if options.json is not None:
        options.json.write_text(json.dumps({"gpu": gpu.name, **result}, indent=1) + "\n")
    return player.WRONG if result["wrong"] else 0


if __name__ == "__main__":
    main()
