"""Repeats the work of a recording and compares the results.

The commands run on a machine, which is an object with these methods:

    allocate(size)               returns a new buffer of `size` bytes
    write(buffer, offset, array)
    read(buffer, size)           returns the first `size` bytes, an array of uint8
    copy(source, from, destination, to, size)
    dispatch(command, buffers)   runs a command of kind "dispatch"; `buffers` is {id: buffer}
"""

import argparse
import fnmatch
import json
import zlib

import numpy as np

VERSION = 1
POISON = 0xC7
WRONG = 1

# The kinds of commands that a machine repeats.  For other commands the recording has the results.
_DONE = ("dispatch", "copy")

DTYPES = {
    "float": np.float32,
    "half": np.float16,
    "bfloat": np.uint16,
    "bool": np.bool_,
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
}
_FLOATS = ("float", "half", "bfloat")


class Recording:
    """A recording, read from its folder or from a prepared folder.

    Attributes:
      folder: the path of the folder.
      programs: the list `programs` of manifest.json.
      commands: the list `commands` of manifest.json.
      sizes: {id of a buffer: its size in bytes}.
      contents: the bytes of contents.bin, an array of uint8.
      times_only: whether the folder lacks results and large inputs.
    Raises:
      ValueError: the folder has no recording, or a recording of another version.
    """

    def __init__(self, folder):
        self.folder = folder
        try:
            manifest = json.loads((folder / "manifest.json").read_text())
        except FileNotFoundError:
            raise ValueError(
                f"{folder} holds no recording: it has no manifest.json, which a program "
                "writes when its recording ends"
            ) from None
        if manifest["version"] != VERSION:
            raise ValueError(
                f"{folder} is of version {manifest['version']}; this program reads only version "
                f"{VERSION}"
            )
        self.programs = manifest["programs"]
        self.commands = manifest["commands"]
        self.sizes = {b["id"]: b["size"] for b in manifest["buffers"]}
        self.times_only = manifest.get("times_only", False)
        packed = folder / "contents.packed"
        if packed.exists():
            self.contents = np.frombuffer(zlib.decompress(packed.read_bytes()), np.uint8)
        else:
            self.contents = np.fromfile(folder / "contents.bin", np.uint8)

    def changes(self, command, when):
        """Yields (id of a buffer, offset in bytes, array of uint8) for each change.

        If the folder lacks the contents of an input, the array has random float32 numbers in
        [0.5, 1.5) instead.  Such numbers are valid logits and valid sums of exponentials.

        Args:
          when: the list of changes to read, "before" or "after".
        """
        for buffer, offset, size, begin in command.get(when, ()):
            if begin is None:
                floats = np.random.default_rng(buffer).random(size // 4, np.float32) + 0.5
                yield buffer, offset, floats.astype(np.float32).view(np.uint8)
            else:
                yield buffer, offset, self.contents[begin : begin + size]

    def poisoned(self):
        """Returns the contents of all buffers before their first write, {id: array}."""
        return {id_: np.full(size, POISON, np.uint8) for id_, size in self.sizes.items()}


def uses(command):
    """The ids of the buffers that a command uses."""
    return [use["buffer"] for use in command["uses"]]


def written(command):
    """The ids of the buffers that a command may write."""
    return sorted({use["buffer"] for use in command["uses"] if use["writes"]})


class Difference:
    """How the found contents of a buffer differ from the expected contents.

    Args:
      found, expected: two arrays of uint8, of the same size but with different contents.
      numbers: the type of the numbers in the buffer, a key of DTYPES, or None.
      tolerance: a `number` of Judge's `tolerances`, or None if no difference is allowed.
    Attributes:
      elements: how many numbers differ.
      total: how many numbers the buffer has.
      first: the index of the first number that differs.
      largest: the largest difference between a found and an expected float.  NaN if a number is a
        NaN in only one of the two contents.  None if the numbers are not floats.
      allowed: whether all differences are within the tolerance.
    """

    def __init__(self, found, expected, numbers, tolerance):
        dtype = DTYPES.get(numbers, np.uint32)
        if len(expected) % np.dtype(dtype).itemsize:
            numbers, dtype = None, np.uint8
        found, expected = found.view(dtype), expected.view(dtype)
        integer = f"u{np.dtype(dtype).itemsize}"
        where = np.nonzero(found.view(integer) != expected.view(integer))[0]
        self.elements, self.total = len(where), len(expected)
        self.first = int(where[0])
        self.largest = None
        self.allowed = False
        if numbers not in _FLOATS:
            return
        a, b = (_to_float64(x[where], numbers) for x in (found, expected))
        with np.errstate(invalid="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            error = np.where(same, 0, np.abs(a - b))
            self.largest = float(error.max())
            if tolerance is not None:
                most = tolerance * np.maximum(1, np.abs(b))
                near = np.isfinite(error) & (error <= most)
                self.allowed = bool((same | near).all())

    def __str__(self):
        by = ""
        if self.largest is not None:
            by = f" by up to {self.largest:.2g}"
        allowed = " (allowed)" if self.allowed else ""
        return f"{self.elements} of {self.total} differ{by}, first [{self.first}]{allowed}"


def _to_float64(array, numbers):
    if numbers == "bfloat":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


class Judge:
    """Compares buffers with their expected contents.

    Args:
      kernels: for each program {name: msl.nvptx.description() of the kernel}.
      tolerances: [(pattern, number)].  The first pattern that matches a kernel's name gives the
        kernel's tolerance.  A float x that the kernel writes may differ from the expected value by
        `number` * max(1, |expected value|).  The results of a kernel that no pattern matches must
        be bit for bit identical.
    """

    def __init__(self, kernels, tolerances=()):
        self._kernels = kernels
        self._tolerances = tolerances

    def differences(self, expected, found, writers):
        """Returns {buffer: its Difference} for the buffers of `found` that differ.

        Args:
          expected: {buffer: contents}, for at least the buffers of `found`.
          found: {buffer: contents}.
          writers: {buffer: the command that wrote the buffer}.  No tolerance applies to a buffer
            that `writers` lacks.
        """
        compared = {
            buffer: self.difference(writers.get(buffer), buffer, content, expected[buffer])
            for buffer, content in found.items()
        }
        return {buffer: result for buffer, result in compared.items() if result is not None}

    def difference(self, command, buffer, found, expected):
        """Returns the Difference of a buffer, or None if its contents are as expected.

        Args:
          command: the command that wrote the buffer, or None.
        """
        if np.array_equal(found, expected):
            return None
        numbers = tolerance = None
        if command is not None and command["kind"] == "dispatch":
            numbers = self._numbers(command, buffer)
            tolerance = next(
                (
                    value
                    for pattern, value in self._tolerances
                    if fnmatch.fnmatchcase(command["kernel"], pattern)
                ),
                None,
            )
        return Difference(found, expected, numbers, tolerance)

    def _numbers(self, command, buffer):
        kernel = self._kernels[command["program"]][command["kernel"]]
        for argument in command["arguments"]:
            if "use" not in argument:
                continue
            use = command["uses"][argument["use"]]
            if use["buffer"] == buffer and use["writes"]:
                return kernel["numbers"].get(str(argument["index"]))
        return None


class Player:
    """Runs the commands of a recording on a machine.

    Attributes:
      expected: {id of a buffer: its recorded contents at the command that check() has reached}.
    """

    def __init__(self, recording, machine):
        self._recording = recording
        self._machine = machine
        self._buffers = {id_: machine.allocate(size) for id_, size in recording.sizes.items()}
        self.expected = recording.poisoned()
        for id_, content in self.expected.items():
            self.set_content(id_, content)

    def set_content(self, buffer, content, offset=0):
        """Writes an array of uint8 into the buffer with this id."""
        self._machine.write(self._buffers[buffer], offset, content)

    def buffer_of(self, id_):
        """Returns the machine's buffer with this id."""
        return self._buffers[id_]

    def read(self, buffers):
        """Returns the present contents of the buffers with these ids, {id: array}."""
        return {
            id_: self._machine.read(self._buffers[id_], self._recording.sizes[id_])
            for id_ in buffers
        }

    def do(self, command):
        """Runs a command on the present contents of the buffers."""
        machine, buffers = self._machine, self._buffers
        if command["kind"] == "dispatch":
            machine.dispatch(command, buffers)
        else:
            source, destination = uses(command)
            machine.copy(
                buffers[source],
                command["from"],
                buffers[destination],
                command["to"],
                command["size"],
            )

    def check(self, judge):
        """Runs each dispatch and each copy on the recorded contents of its buffers.

        Commands of the kind "other" cannot be repeated.  Yields (command, {buffer: Difference})
        for each command that runs; the dictionary is empty if nothing differs.  The last pair is
        (None, {buffer: Difference}) for the buffers that differ at the end and were in no
        other pair.  Some command has written to such a buffer by mistake.
        """
        wrong = set()  # buffers whose contents are not as recorded
        reported = set()
        for command in self._recording.commands:
            for buffer, offset, content in self._recording.changes(command, "before"):
                self.expected[buffer][offset : offset + len(content)] = content
                self.set_content(buffer, content, offset)
            if command["kind"] not in _DONE:
                continue
            for buffer in wrong.intersection(uses(command)):
                self.set_content(buffer, self.expected[buffer])
                wrong.discard(buffer)
            self.do(command)
            for buffer, offset, content in self._recording.changes(command, "after"):
                self.expected[buffer][offset : offset + len(content)] = content
            outputs = written(command)
            differences = judge.differences(
                self.expected, self.read(outputs), dict.fromkeys(outputs, command)
            )
            wrong.update(differences)
            reported.update(differences)
            yield command, differences
        unreported = set(self.expected) - reported
        yield None, judge.differences(self.expected, self.read(unreported), {})


class Sequence:
    """All dispatches and copies of a recording, to run one after another.

    Between the commands, further copies repeat the writes of torch's operators and of the CPU.
    Writes to a buffer before its first command need no copy: the buffer has the written contents
    from the beginning.

    Attributes:
      steps: [(command, function that runs the step)].  The command is None if the step is
        a copy between the commands.
      writers: {buffer: the last command that writes the buffer}.
    """

    def __init__(self, recording, player, machine):
        self._machine = machine
        self.steps = []
        self.writers = {}
        self._pristine = []
        images = recording.poisoned()
        seen, changed = set(), set()
        for command in recording.commands:
            for buffer, offset, content in recording.changes(command, "before"):
                if buffer in seen:
                    self._stand_in(player, buffer, offset, content)
                    changed.add(buffer)
                else:
                    images[buffer][offset : offset + len(content)] = content
            if command["kind"] not in _DONE:
                continue
            seen.update(uses(command))
            changed.update(written(command))
            for buffer in written(command):
                self.writers[buffer] = command
            self.steps.append((command, lambda command=command: player.do(command)))
        for buffer, image in images.items():
            player.set_content(buffer, image)
            if buffer in changed:
                pristine = machine.allocate(len(image))
                machine.write(pristine, 0, image)
                self._pristine.append((pristine, player.buffer_of(buffer), len(image)))

    def _stand_in(self, player, buffer, offset, content):
        staged = self._machine.allocate(len(content))
        self._machine.write(staged, 0, content)
        to = player.buffer_of(buffer)
        self.steps.append((None, lambda: self._machine.copy(staged, 0, to, offset, len(content))))

    def restore(self):
        """Restores the contents that the buffers had before the first step."""
        for pristine, buffer, size in self._pristine:
            self._machine.copy(pristine, 0, buffer, 0, size)

    def run(self):
        """Runs all steps once."""
        for _, step in self.steps:
            step()


def _tolerance(text):
    pattern, _, value = text.rpartition("=")
    try:
        return pattern, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; a tolerance looks like KERNEL=1e-5") from None


def add_options(parser):
    """Adds to an ArgumentParser the options that `check` and replay.py have in common."""
    parser.add_argument(
        "--tolerance",
        action="append",
        default=[],
        type=_tolerance,
        metavar="KERNEL=VALUE",
        help="how much the floats that a kernel writes may differ: by VALUE, and floats above 1 "
        "by VALUE times the float; KERNEL may have the wildcards * and ?; by default all bits "
        "must be equal",
    )


def replay(recording, machine, kernels, tolerances, say=print, measure=None):
    """Replays a recording, and prints a line for each command and each wrong buffer.

    Args:
      recording, machine: the arguments of Player.
      kernels, tolerances: the arguments of Judge.
      say: a function that prints a line of text.
      measure: a function that measures a Sequence, or None to measure nothing.  The
        function returns {"steps": [list of times for each step], "sequence": list of
        times of the whole sequence}, in microseconds.
    Returns:
      The number of wrong results.
    Raises:
      ValueError: the recording's folder was made with --times-only, and `measure` is None.
    """
    if recording.times_only:
        _say_times(recording, machine, say, measure)
        return 0
    judge = Judge(kernels, tolerances)
    player = Player(recording, machine)
    outcomes = list(player.check(judge))
    stray = outcomes.pop()[1]

    sequence = Sequence(recording, player, machine)
    times = measure(sequence) if measure else None
    sequence.restore()
    sequence.run()
    first = player.read(recording.sizes)
    sequence.restore()
    sequence.run()
    again = judge.differences(first, player.read(recording.sizes), {})
    at_end = judge.differences(player.expected, first, sequence.writers)

    medians = {}
    if times:
        for (command, _), values in zip(sequence.steps, times["steps"]):
            medians.setdefault(id(command) if command else None, []).append(np.median(values))
    for command, differences in outcomes:
        say(_line(command, differences, medians.get(id(command))))
    for buffer, difference in stray.items():
        say(f"buffer {buffer}, to which no command should write: {difference}")
    for buffer, difference in at_end.items():
        say(f"buffer {buffer} after the sequence: {difference}")
    for buffer in again:
        say(f"buffer {buffer} differs after a second run")
    if times:
        others = sum(medians.pop(None, []))
        say(
            f"kernels {sum(map(sum, medians.values())):.1f} us; copies of other work's results "
            f"{others:.1f} us; the whole sequence {np.median(times['sequence']):.1f} us "
            f"(least {min(times['sequence']):.1f})"
        )
    wrong = sum(not _is_allowed(differences) for _, differences in outcomes)
    wrong += len(stray) + len(again) + sum(not d.allowed for d in at_end.values())
    say(f"{len(outcomes)} commands, {f'{wrong} wrong' if wrong else 'all as recorded'}")
    return wrong


def _say_times(recording, machine, say, measure):
    """Prints a line for each kernel with the kernel's times, then a line with the total times."""
    if measure is None:
        raise ValueError(
            f"{recording.folder} was made with --times-only: it has no results to compare"
        )
    sequence = Sequence(recording, Player(recording, machine), machine)
    times = measure(sequence)
    kernels = {}
    copies = 0
    for (command, _), values in zip(sequence.steps, times["steps"]):
        if command is None:
            copies += np.median(values)
        else:
            kernels.setdefault(command["name"], []).append(np.median(values))
    for name, medians in kernels.items():
        say(f"{name:<48}{len(medians):6} x {np.median(medians):9.1f} us {sum(medians):12.1f} us")
    say(
        f"{sum(map(len, kernels.values()))} kernels {sum(map(sum, kernels.values())):.1f} us; "
        f"copies of other work's results {copies:.1f} us; the whole sequence "
        f"{np.median(times['sequence']):.1f} us (least {min(times['sequence']):.1f}); "
        "nothing was compared"
    )


def _is_allowed(differences):
    return all(difference.allowed for difference in differences.values())


def _line(command, differences, times):
    """Returns a line with a command, its times in microseconds, and its result."""
    size = ""
    if command["kind"] == "dispatch":
        size = " {} / {}".format(_extent(command["grid"]), _extent(command["threadgroup"]))
    us = f"{sum(times):9.1f} us" if times else ""
    result = "same bits"
    if differences:
        result = "; ".join(f"{buffer}: {found}" for buffer, found in differences.items())
        if not _is_allowed(differences):
            result = "WRONG: buffer " + result
    return f"{command['name'] + size:<48}{us}  {result}"


def _extent(sizes):
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes = sizes[:-1]
    return "x".join(map(str, sizes))
