"""Repeats the commands of a recording.

The commands run on a machine, which is an object with these methods:

    allocate(size)               returns a new buffer of `size` bytes
    write(buffer, offset, array) writes an array of uint8
    read(buffer, size)           returns the first `size` bytes, an array of uint8
    copy(source, begin, destination, to, size)
                                 copies bytes between two buffers; `begin` and `to` are offsets
    dispatch(command, buffers)   runs a command of kind "dispatch"; `buffers` is {id: buffer}
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .judge import Difference, Judge
from .recording import REPEATED, Recording, uses, written


class Player:
    """Runs the commands of a recording on a machine.

    Attributes:
      expected: {id of a buffer: its recorded contents at the command that check() has reached}.
    """

    def __init__(self, recording: Recording, machine: Any):
        self._recording = recording
        self._machine = machine
        self._buffers = {id_: machine.allocate(size) for id_, size in recording.sizes.items()}
        self.expected = recording.poisoned()
        for id_, content in self.expected.items():
            self.set_content(id_, content)

    def set_content(self, buffer: int, content: np.ndarray, offset: int = 0) -> None:
        """Writes an array of uint8 into the buffer with this id."""
        self._machine.write(self._buffers[buffer], offset, content)

    def buffer_of(self, id_: int) -> Any:
        """Returns the machine's buffer with this id."""
        return self._buffers[id_]

    def read(self, buffers: Iterable[int]) -> dict[int, np.ndarray]:
        """Returns the present contents of the buffers with these ids, by id."""
        return {
            id_: self._machine.read(self._buffers[id_], self._recording.sizes[id_])
            for id_ in buffers
        }

    def do(self, command: dict) -> None:
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

    def check(self, judge: Judge) -> Iterator[tuple[dict | None, dict[int, Difference]]]:
        """Runs each dispatch and each copy on the recorded contents of its buffers.

        Commands of the kind "other" cannot be repeated.

        Yields:
          For each command that runs, the command and the differences of its buffers, by buffer.
          At the end None and the buffers that differ now but were in no other pair.  Some command
          has written to such a buffer by mistake.
        """
        wrong = set()  # buffers whose contents are not as recorded
        reported = set()
        for command in self._recording.commands:
            for buffer, offset, content in self._recording.changes(command, "before"):
                self.expected[buffer][offset : offset + len(content)] = content
                self.set_content(buffer, content, offset)
            if command["kind"] not in REPEATED:
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


class CommandSequence:
    """All dispatches and copies of a recording, to run one after another.

    Between the commands, further copies repeat the writes of torch's operators and of the CPU.  A
    buffer begins with what was written into it before the first command that uses it, so these
    writes need no copy.

    Attributes:
      steps: for each step its command and a function that runs the step.  The command is None if
        the step is a copy between the commands.
      writers: {buffer: the last command that writes the buffer}.
    """

    def __init__(self, recording: Recording, player: Player, machine: Any):
        self._machine = machine
        self.steps: list[tuple[dict | None, Callable[[], None]]] = []
        self.writers: dict[int, dict] = {}
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
            if command["kind"] not in REPEATED:
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
        """Adds a step that repeats a write of `content` at an offset of a buffer."""
        staged = self._machine.allocate(len(content))
        self._machine.write(staged, 0, content)
        to = player.buffer_of(buffer)
        self.steps.append((None, lambda: self._machine.copy(staged, 0, to, offset, len(content))))

    def restore(self) -> None:
        """Restores the contents that the buffers had before the first step."""
        for pristine, buffer, size in self._pristine:
            self._machine.copy(pristine, 0, buffer, 0, size)

    def run(self) -> None:
        """Runs all steps once."""
        for _, step in self.steps:
            step()
