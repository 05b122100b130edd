"""Tests recordings and their replay.

The tests need no GPU: they replay on the emulated device, with the same modules that replay on an
NVIDIA GPU.
"""

import json
import os
import subprocess
import sys

import kernels
import mps_emulator
import numpy as np
import pytest
import torch
from mps_emulator.replay import cuda, prepare
from mps_emulator.replay.__main__ import main
from mps_emulator.replay.emulated import Emulated
from mps_emulator.replay.judge import Judge
from mps_emulator.replay.player import CommandSequence, Player
from mps_emulator.replay.recording import Recording, uses, written
from mps_emulator.replay.replaying import WRONG, Times, replay

# Checks of extension/metal.mm.  Together the checks use all kinds of commands.
PROGRAMS = [
    "private buffer",
    "commands run in the order of commits",
    "waiting for one queue does not publish another",
    "argument table",
    "events order two queues",
    "torch's own stream API",
    "completed handler of the stream's command buffer",
]


def record(folder, work):
    with mps_emulator.record(folder):
        work()
    return Recording(folder)


@pytest.fixture
def recorded(tmp_path):
    """The folder of a recording with two dispatches, and an operator on y between them."""
    x = torch.arange(5000, dtype=torch.float32).to("mps")
    y = torch.ones(5000, device="mps")

    def work():
        kernels.axpy(x, y, 2.0)
        y.mul_(3)
        torch.mps.synchronize()
        kernels.axpy(x, y, 0.5)

    record(tmp_path / "recording", work)
    expected = (torch.arange(5000) * 2.0 + 1) * 3 + torch.arange(5000) * 0.5
    assert torch.equal(y.cpu(), expected)
    return tmp_path / "recording"


def edit(folder, change):
    """Changes a recording.

    Args:
      change: a function that gets the list `commands` of manifest.json and the bytes of
        contents.bin, and changes both in place.
    """
    manifest = json.loads((folder / "manifest.json").read_text())
    contents = np.fromfile(folder / "contents.bin", np.uint8)
    change(manifest["commands"], contents)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    contents.tofile(folder / "contents.bin")


def test_a_recording_has_the_commands_and_the_changes_before_them(recorded):
    commands = Recording(recorded).commands
    assert [(c["kind"], c["name"]) for c in commands] == [("dispatch", "kernel axpy")] * 2
    first, second = commands
    assert first["grid"] == [5000, 1, 1]
    y, x = uses(first)
    assert written(first) == [y]
    assert [a.get("bytes") for a in second["arguments"]] == [
        None,
        None,
        np.float32(0.5).tobytes().hex(),
    ]
    # The first list has the contents of both buffers.  The second list has only the operator's
    # changes.
    assert {change[0] for change in first["before"]} == {x, y}
    assert {change[0] for change in second["before"]} == {y}


def test_a_replay_gives_the_same_bits(recorded, capsys):
    assert main(["check", str(recorded)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line in lines[:2]:
        assert line.startswith("kernel axpy 5000 / ") and line.endswith("same bits")
    assert lines[2:] == ["2 commands, all as recorded"]


def test_a_result_that_differs_from_the_recorded_one_is_reported(recorded, capsys):
    def change(commands, contents):
        ((_, _, _, begin),) = commands[-1]["after"][:1]
        contents[begin + 8] ^= 1

    edit(recorded, change)
    assert main(["check", str(recorded)]) == WRONG
    said = capsys.readouterr().out
    first, second, at_end, last = said.splitlines()
    assert first.endswith("same bits")
    assert "WRONG: buffer" in second
    assert "1 of 5000 differ by up to" in second and "first [2]" in second
    assert "after the sequence: 1 of 5000 differ" in at_end
    assert last == "2 commands, 2 wrong"


def test_changes_between_commands_are_replayed(recorded, capsys):
    def change(commands, contents):
        commands[-1]["before"] = []

    edit(recorded, change)
    assert main(["check", str(recorded)]) == WRONG
    assert "5000 of 5000 differ" in capsys.readouterr().out


def test_a_write_to_a_buffer_that_is_only_read_is_wrong(recorded, capsys):
    """A kernel that writes past the end of a buffer can change another buffer."""

    def change(commands, contents):
        commands[-1]["after"] = []
        for use in commands[-1]["uses"]:
            use["writes"] = False

    edit(recorded, change)
    assert main(["check", str(recorded)]) == WRONG
    assert "no command should write: 4999 of 5000" in capsys.readouterr().out


def test_a_tolerance_allows_differences_of_its_kernels(recorded, capsys):
    def change(commands, contents):
        for _, _, size, begin in commands[-1]["after"]:
            content = contents[begin : begin + size].view(np.float32)
            content *= np.float32(1 + 1e-6)

    edit(recorded, change)
    arguments = ["check", str(recorded), "--tolerance"]
    assert main([*arguments, "axpy=1e-5"]) == 0
    assert "(allowed)" in capsys.readouterr().out
    assert main([*arguments, "other=1e-5"]) == WRONG
    assert main([*arguments, "ax*=1e-7"]) == WRONG
    # If several patterns match, the first one gives the tolerance.
    assert main([*arguments, "axp?=1e-5", "--tolerance", "*=0"]) == 0
    with pytest.raises(SystemExit):
        main([*arguments, "axpy"])
    assert "looks like KERNEL=1e-5" in capsys.readouterr().err


def test_differences_of_floats_and_integers():
    def difference(found, expected, numbers, tolerance=1e-3):
        judge = Judge([{"k": {"numbers": {"3": numbers}}}], [("k", tolerance)])
        command = {
            "kind": "dispatch",
            "program": 0,
            "kernel": "k",
            "arguments": [{"index": 3, "use": 0, "offset": 0}],
            "uses": [{"buffer": 7, "writes": True}],
        }
        return judge.difference(command, 7, found.view(np.uint8), expected.view(np.uint8))

    nan, inf = np.nan, np.inf
    expected = np.array([1, nan, inf, -2000], np.float32)
    assert difference(expected.copy(), expected, "float") is None
    near = np.array([1.0005, -nan, inf, -2001], np.float32)
    found = difference(near, expected, "float")
    assert found.allowed and found.elements == 3 and found.first == 0
    assert found.largest == 1
    for wrong in (
        [1.002, nan, inf, -2000],
        [1, 0, inf, -2000],
        [1, nan, -inf, -2000],
        [nan, nan, inf, -2000],
    ):
        wrong = np.array(wrong, np.float32)
        assert not difference(wrong, expected, "float").allowed
    half = np.array([1, 2], np.float16)
    assert difference(half + np.float16(0.001), half, "half").allowed
    bfloat = np.array([0x3F80, 0x4000], np.uint16)  # 1 and 2
    assert difference(bfloat + np.uint16(1), bfloat, "bfloat").largest == 2**-6
    # Tolerances do not apply to integers and structures.
    ints = np.array([1000000, 2], np.int32)
    assert not difference(ints + 1, ints, "int").allowed
    assert not difference(ints + 1, ints, None).allowed
    assert difference(ints + 1, ints, None).elements == 2
    odd = np.array([1, 2, 3], np.uint8)
    assert difference(odd + np.uint8(1), odd, "float").total == 3


def test_a_race_shows_in_another_order(tmp_path, monkeypatch, capsys):
    library = torch.mps.compile_shader(
        "kernel void last(device uint *x, uint i [[thread_position_in_grid]]) { x[0] = i; }"
    )
    x = torch.zeros(4, dtype=torch.int32, device="mps")
    record(tmp_path / "r", lambda: library.last(x, threads=64))
    assert main(["check", str(tmp_path / "r")]) == 0
    monkeypatch.setenv("MPS_EMULATOR_SCHEDULE", "reverse")
    assert main(["check", str(tmp_path / "r")]) == WRONG
    assert "1 of 4 differ, first [0]" in capsys.readouterr().out


def test_all_kinds_of_commands_are_recorded_and_replayed(extension, tmp_path, capsys):
    def work():
        for name in PROGRAMS:
            extension.run_metal_check(name)

    recording = record(tmp_path / "r", work)
    assert main(["check", str(tmp_path / "r")]) == 0, capsys.readouterr().out
    kinds = {command["kind"] for command in recording.commands}
    assert kinds == {"copy", "dispatch", "other"}


def test_a_recording_has_the_threadgroup_memory(extension, tmp_path):
    recording = record(
        tmp_path / "r", lambda: extension.between_commands("threadgroup memory too short", True)
    )
    (dispatch,) = [c for c in recording.commands if c["kind"] == "dispatch"]
    assert dispatch["threadgroup_bytes"] == {"0": 256}
    assert main(["check", str(tmp_path / "r")]) == 0


def test_a_recording_has_what_the_cpu_writes(extension, tmp_path):
    x, y = torch.ones(1000, device="mps"), torch.zeros(1000, device="mps")

    def work():
        kernels.axpy(x, y, 1.0)
        torch.mps.synchronize()
        extension.write_contents(x, [5.0] * 10)
        kernels.axpy(x, y, 1.0)

    recording = record(tmp_path / "r", work)
    assert y.sum().item() == 2040
    first, second = [c for c in recording.commands if c["kind"] == "dispatch"]
    _, read = uses(first)
    assert [change[:2] for change in second["before"]] == [[read, 0]]
    assert main(["check", str(tmp_path / "r")]) == 0


def test_a_recording_needs_an_empty_folder(recorded):
    with pytest.raises(FileExistsError, match="is not empty"):
        with mps_emulator.record(recorded):
            pass


def test_an_error_may_name_any_path(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeError, match="caf\ufffd: Not a directory"):
        with mps_emulator.record(tmp_path / os.fsdecode(b"file/caf\xe9")):
            pass


def test_a_refused_second_recording_leaves_the_first_one_complete(tmp_path):
    with mps_emulator.record(tmp_path / "one"):
        with pytest.raises(RuntimeError, match="another recording"):
            with mps_emulator.record(tmp_path / "two"):
                pass
        kernels.fill_with_index(torch.empty(3, dtype=torch.int32, device="mps"))
    (command,) = Recording(tmp_path / "one").commands
    assert command["name"] == "kernel fill_with_index"


def test_work_outside_of_the_block_is_not_recorded(tmp_path):
    x, y = torch.ones(8, device="mps"), torch.zeros(8, device="mps")
    kernels.axpy(x, y, 1.0)
    recording = record(tmp_path / "r", lambda: kernels.axpy(x, y, 2.0))
    kernels.axpy(x, y, 4.0)
    assert y.cpu().tolist() == [7] * 8
    assert [c["kind"] for c in recording.commands] == ["dispatch"]


def test_a_folder_without_a_recording_is_refused(tmp_path, capsys):
    assert main(["check", str(tmp_path)]) == cuda.UNUSABLE
    assert "it has no manifest.json" in capsys.readouterr().out
    (tmp_path / "manifest.json").write_text('{"version": 99}')
    assert main(["check", str(tmp_path)]) == cuda.UNUSABLE
    assert "is of version 99" in capsys.readouterr().out


def test_a_prepared_folder_has_the_recording_and_a_program(recorded, tmp_path):
    folder = tmp_path / "prepared"
    folder.mkdir()  # The user may have made the folder.
    assert main(["prepare", str(recorded), str(folder)]) == 0
    assert main(["prepare", str(recorded), str(folder)]) == cuda.UNUSABLE
    original, prepared = map(Recording, (recorded, folder))
    assert np.array_equal(original.contents, prepared.contents)
    assert original.commands == prepared.commands
    (program,) = json.loads((folder / "kernels.json").read_text())
    assert set(program["kernels"]) == {"axpy", "fill_with_index", "poke_at"}
    assert program["kernels"]["axpy"]["numbers"] == {"0": "float", "1": "float", "2": "float"}
    assert ".entry axpy" in (folder / program["ptx"]).read_text()
    # replay.py runs without the package mps_emulator.
    done = subprocess.run(
        [sys.executable, str(folder / "replay.py")], cwd=tmp_path, capture_output=True, text=True
    )
    try:
        cuda.Driver()
    except cuda.NoGpu:
        assert done.returncode == cuda.NO_GPU, done.stderr
        assert done.stdout.startswith("no GPU: ")
    else:
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_folder_with_times_only_has_floats_in_place_of_large_inputs(recorded, tmp_path):
    folder = tmp_path / "prepared"
    assert main(["prepare", str(recorded), str(folder), "--times-only", "0.01"]) == 0
    recording = Recording(folder)
    first, second = recording.commands
    assert [name for name in ("before", "after") if name in first] == ["before"]
    # The folder lacks the 20,000 bytes of each buffer, so changes() returns random floats instead.
    assert len(recording.contents) == 0
    for _, _, content in recording.changes(first, "before"):
        floats = content.view(np.float32)
        assert len(floats) == 5000
        assert 0.5 <= floats.min() < 0.51 and 1.49 < floats.max() < 1.5
    machine = Emulated(Recording(recorded))
    with pytest.raises(ValueError, match="made with --times-only"):
        replay(recording, machine, [{}], [])
    lines = []
    steps = len(CommandSequence(recording, Player(recording, machine), machine).steps)
    assert steps == 3  # two dispatches, and a copy of the bytes that the operator changed
    measured = Times(steps=[[1.0, 3.0, 2.0], [5.0], [4.0]], sequence=[9.0, 8.0])
    assert replay(recording, machine, [{}], [], lines.append, lambda _: measured) == 0
    kernel, total = lines
    assert kernel.split() == "kernel axpy 2 x 3.0 us 6.0 us".split()
    assert total == (
        "2 kernels 6.0 us; copies of other work's results 5.0 us; the whole sequence 8.5 us "
        "(least 8.0); nothing was compared"
    )


def test_a_folder_with_times_only_has_all_inputs(recorded, tmp_path):
    folder = tmp_path / "prepared"
    assert main(["prepare", str(recorded), str(folder), "--times-only"]) == 0
    recording = Recording(folder)
    assert not any("after" in command for command in recording.commands)
    machine = Emulated(Recording(recorded))
    played = Player(recording, machine)
    CommandSequence(recording, played, machine).run()
    y, _ = uses(recording.commands[0])
    x = np.arange(5000, dtype=np.float32)
    assert np.array_equal(played.read([y])[y].view(np.float32), (x * 2 + 1) * 3 + x / 2)


def test_exp_needs_libdevice(tmp_path, capsys):
    library = torch.mps.compile_shader(
        "kernel void e(device float *x, uint i [[thread_position_in_grid]])"
        " { x[i] = metal::exp(x[i]); }"
    )
    x = torch.ones(4, device="mps")
    record(tmp_path / "r", lambda: library.e(x))
    without = ["prepare", str(tmp_path / "r"), str(tmp_path / "p")]
    if prepare.find_libdevice() is None:
        assert main(without) == cuda.UNUSABLE
        assert "--libdevice" in capsys.readouterr().out
    else:
        assert main(without) == 0


def test_a_full_disk_is_an_error_of_the_recording_only(in_child, tmp_path):
    done = in_child(
        "import resource, mps_emulator, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "x, y = torch.ones(2, 1 << 19, device='mps')\n"
        "kernels.axpy(x, y, 1.0)\n"
        "torch.mps.synchronize()\n"
        "try:\n"
        f"    with mps_emulator.record({str(tmp_path / 'r')!r}):\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        "        kernels.axpy(x, y, 1.0)\n"
        "except OSError as error:\n"
        "    print(error)\n"
        "print(y.cpu()[0].item())\n"
    )
    assert "the recording is not complete: " in done.stdout, done.stderr
    assert "contents.bin: File too large" in done.stdout
    # The kernel has run although its recording failed.
    assert done.stdout.splitlines()[-1] == "3.0"
