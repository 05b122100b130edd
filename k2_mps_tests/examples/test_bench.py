"""The benchmark measures all operations, writes its files, and refuses times of other machines."""

import json
import os
import re
import sys
import time

import pytest
import torch

from k2_mps_tests import gpu_times
from k2_mps_tests.benchmarks import shares

# How many operations bench.operations() has.
OPERATIONS = 13


@pytest.fixture
def bench():
    from k2_mps_tests.benchmarks import bench  # needs k2

    return bench


@pytest.fixture
def main(bench, monkeypatch, capsys):
    monkeypatch.setattr(bench, "SIZES", {"full": [(1, 8, 2), (2, 9, 3)]})
    monkeypatch.setattr(shares, "REPEATS", 1)
    monkeypatch.setattr(shares, "SECONDS", 0)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["bench", "--repeats", "1", *map(str, arguments)])
        bench.main()
        return capsys.readouterr().out

    return run


@pytest.mark.k2
def test_bench_measures_each_operation_and_writes_files(main, tmp_path):
    from k2_mps_tests.benchmarks import operations

    out = main("--output", tmp_path / "first")
    document = json.loads((tmp_path / "first" / "bench.json").read_text())
    rows = document["rows"]
    assert [row["error"] for row in rows if "error" in row] == []
    rows_with_size = [row for row in rows if row["size"]]
    assert {row["place"] for row in rows_with_size} == {"cpu", "mps-host", "mps-metal"}
    assert len(rows_with_size) == 3 * 2 * OPERATIONS
    assert [(row["operation"], row["place"]) for row in rows if not row["size"]] == [
        (operations.COPY, "cpu"),
        (operations.COPY, "mps-metal"),
        (operations.DISPATCH, "mps-metal"),
        (operations.GATE, "mps-metal"),
    ]
    for row in rows:
        assert 0 < row["least"] <= row["seconds"] <= row["most"]
        if row["place"] == "mps-metal":
            assert 0 < row["gpu_milliseconds"]["median"] < 1e4
    for kind in ("png", "svg"):
        assert (tmp_path / "first" / ("bench." + kind)).stat().st_size > 1000
    if sys.platform != "darwin":
        assert document["where"]["mps"] == "emulated"
        assert "these are no times of a GPU" in out
        lines = list(shares.table(rows))
        assert len(lines) == 1 + 2 * 2 * OPERATIONS + 1
        assert all(line in out for line in lines)
        assert re.search(
            r"copy of 64 MiB, any size, mps-metal \(emulated\): min .* GB/s$", out, re.M
        )

    out = main("--output", tmp_path / "second", "--compare", tmp_path / "first" / "bench.json")
    assert len(re.findall(r"\d\.\d\dx", out)) == len(rows)


@pytest.mark.k2
def test_an_operation_that_fails_costs_only_itself(bench, main, monkeypatch, tmp_path):
    """As when Metal's compiler refuses one kernel."""
    import k2

    right = k2.mutual_information_recursion

    def wrong(px, *arguments, **options):
        if px.device.type == "mps" and os.environ.get("K2_MPS_FORCE") == "metal":
            raise RuntimeError("Metal cannot compile mutual_information.metal")
        return right(px, *arguments, **options)

    monkeypatch.setattr(k2, "mutual_information_recursion", wrong)
    with pytest.raises(SystemExit, match="failed: mutual_information_recursion with gradient$"):
        main("--output", tmp_path)
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert len(rows) == 3 * 2 * OPERATIONS + 4
    errors = [(row["place"], row["error"]) for row in rows if "error" in row]
    assert errors == 2 * [
        ("mps-metal", "RuntimeError: Metal cannot compile mutual_information.metal")
    ]
    assert all("seconds" in row for row in rows if "error" not in row)


@pytest.mark.k2
def test_another_machine_is_refused(bench, main, tmp_path):
    where = dict(bench.where(), machine="another")
    (tmp_path / "old.json").write_text(json.dumps({"where": where, "rows": []}))
    with pytest.raises(SystemExit, match="is of another machine"):
        main("--output", tmp_path, "--compare", tmp_path / "old.json")
    assert not (tmp_path / "bench.json").exists()


@pytest.mark.k2
def test_the_table_shows_changes_since_an_earlier_run(bench):
    times = {"seconds": 2e-3, "least": 1e-3, "most": 3e-3}
    row = {"operation": "x", "size": [1, 2, 3], "place": "cpu", **times}
    head, line = bench.table([row], [dict(row, seconds=5e-3)])
    assert "cpu" in head and "2.00 ms (1.00 ms to 3.00 ms) 2.50x" in line
    assert "x" not in list(bench.table([row]))[1].replace("x", "", 1)


@pytest.mark.skipif(sys.platform == "darwin", reason="mps is the real one")
def test_the_hosts_time_leaves_out_kernels_and_operators(monkeypatch):
    """The host's time leaves out the time of kernels and of torch's operators."""
    import mps_emulator

    monkeypatch.setattr(shares, "SECONDS", 0)
    slow = torch.mps.compile_shader(
        "kernel void slow(device int *x) {"
        "  for (int i = 0; i < 50000000; ++i) *(volatile device int *)x += i;"
        "}"
    ).slow
    x = torch.zeros(1, dtype=torch.int32, device="mps")
    a = torch.ones(1000, 1000, device="mps")

    def operation(reads):
        slow(x, threads=1)
        time.sleep(0.05)
        b = a.flip(0).sort(1)[0]
        if reads:
            b.sum().item()

    operation(True)
    with mps_emulator.trace() as trace:
        operation(True)
    kernel = (trace.dispatches[0].end - trace.dispatches[0].begin) / 1e9
    for reads in (True, False):
        row = shares.profile(lambda: operation(reads), "mps")
        # The upper limit allows other programs to slow the operation down.
        assert 0.05 <= row["host"] < 0.05 + kernel / 2
        assert (row["dispatches"], row["waits"]) == (1, reads)
        assert row["peak"] >= 8e6
        assert row["moved"] >= 8e6 + 8e6 + 8e6
    row = shares.profile(lambda: torch.ones(1000, 1000) + 1, "cpu")
    assert 8e6 <= row["peak"] < 9e6
    assert row.keys() == {"host", "peak"}


@pytest.mark.k2
@pytest.mark.skipif(sys.platform == "darwin", reason="mps is the real one")
def test_the_replay_of_a_recording_gives_the_same_results(monkeypatch, tmp_path):
    """The replay gives results that are bit for bit identical to the recorded results."""
    from mps_emulator.replay.__main__ import main as replay

    from k2_mps_tests.benchmarks import record

    operations = ["ctc_loss with gradient, float", "mutual_inf"]
    arguments = ["record", str(tmp_path), *operations, *"--size 2 9 3".split()]
    monkeypatch.setattr(sys, "argv", arguments)
    record.main()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["ctc_loss_with_gradient_float", "mutual_information_recursion_with_gradient"]
    for name in names:
        assert replay(["check", str(tmp_path / name)]) == 0


@pytest.mark.k2
def test_torchs_own_ctc_loss_is_counted_beside_k2s(monkeypatch, capsys, request):
    import k2_mac
    from k2_mps_tests.benchmarks import torch_ctc

    monkeypatch.setattr(sys, "argv", ["torch_ctc"])
    for name, value in {"FRAMES": 100, "LABELS": 20, "LENGTH": 16}.items():
        monkeypatch.setattr(torch_ctc, name, value)
    request.addfinalizer(k2_mac.uninstall_ctc_loss)
    status = torch_ctc.main()
    out = capsys.readouterr().out
    if status == torch_ctc.UNREACHABLE:
        pytest.skip(out)
    rows = [line.strip("| ").split(" | ") for line in out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["torch's ctc_loss", "k2's ctc_loss"]
    for row in rows:
        assert all(float(number) > 0 for number in row[1:5])
        assert float(row[5]) < 1e-5 and float(row[6]) < 1e-2


@pytest.mark.parametrize(
    "times, seconds",
    [
        ([], 0),
        ([(1, 2), (5, 7)], 3),
        ([(2, 4), (1, 3)], 3),
        # Two command buffers while a third one runs.
        ([(1, 6), (2, 3), (5, 8)], 7),
    ],
)
def test_the_gpu_is_busy_while_at_least_one_command_buffer_runs(times, seconds):
    assert gpu_times.busy(times) == seconds


def test_a_spread_leaves_out_what_could_not_be_measured():
    found = gpu_times.spread([None, 3.0, 1.0, 9.0])
    assert found == {"min": 1.0, "median": 3.0, "max": 9.0}
    assert gpu_times.text(found) == "min 1.000, median 3.000, max 9.000"
    assert gpu_times.text(gpu_times.spread([None])) == "no time"
