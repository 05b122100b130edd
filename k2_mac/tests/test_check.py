"""python -m k2_mac.check finds wrong results, and names the machine."""

import contextlib
import dataclasses
import math
import platform
import sys
import xml.etree.ElementTree as ElementTree

import _k2
import k2
import pytest
import torch

from k2_mac import check, check_page
from k2_mps_tests.parity.helpers import python

QUICK = ["--size", "small", "--seconds", "0"]


def test_this_device_is_good(tmp_path):
    path = tmp_path / "check.html"
    result = python("-m", "k2_mac.check", *QUICK, "--html", path)
    assert result.returncode == check.OK, result.stdout + result.stderr
    number = len(check.OPERATIONS)
    assert f"{number} of {number} operations agree" in result.stdout
    page = path.read_text()
    for name in check.OPERATIONS:
        assert name in result.stdout and name in page
    # The page names the device on which k2 measured the times.
    name = torch.backends.mps.get_name()
    assert sys.platform == "darwin" or "Emulated" in name
    assert f"<h2>mps ({name}) against the CPU</h2>" in page
    # The page needs no other file, and its drawings are well formed.
    assert "http" not in page and page.count("<svg") == 2
    for part in page.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")


def test_the_facts_come_before_the_first_comparison(monkeypatch, capsys):
    """A comparison can take a minute, and the reader must not wait for it."""

    def stop(name, size):
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "compare", stop)
    with pytest.raises(KeyboardInterrupt):
        check.main(QUICK)
    said = capsys.readouterr().out
    assert said.startswith("k2: ") and "\ntorch: " in said
    assert said.endswith("\ncomparing ctc_loss ...\n")


def test_a_page_that_cannot_be_written_is_an_error_before_the_checks(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(check, "check", lambda *arguments: pytest.fail("the checks ran"))
    with pytest.raises(SystemExit) as ended:
        check.main(["--html", str(tmp_path / "none/check.html")])
    assert ended.value.code == 2
    assert "--html: [Errno 2] No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("name", check.OPERATIONS)
def test_an_error_of_twice_the_allowance_is_wrong(name):
    """The allowances are for rounding: each is below a thousandth of the largest value."""
    _, allowed = check.OPERATIONS[name]
    for size in check.SIZES:
        assert 0 < allowed(size) < 1e-3
        result = check._difference(torch.ones(3), torch.ones(3) + 2 * allowed(size))
        assert not check.Comparison(name, result, allowed(size)).ok


COMPARE_SMALL_PROBLEMS = """
from k2_mac import check
wrong = [name for name in check.OPERATIONS if not check.compare(name, "small").ok]
assert not wrong, wrong
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="only the emulator can change data pointers")
def test_a_device_of_a_later_torch_is_good():
    """In a later torch, data pointers are host addresses.

    A later torch also asserts that commands are encoded on the queue of the current stream.
    """
    later = {"MPS_EMULATOR_POINTERS": "addresses", "MPS_EMULATOR_ASSERT_QUEUE": "1"}
    result = python("-c", COMPARE_SMALL_PROBLEMS, K2_MPS_FORCE="metal", **later)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("times_count", [True, False])
def test_only_a_mac_has_a_verdict_on_speed(times_count):
    result = check.Result([], "A GPU", "small", times_count=times_count)
    result.comparisons.append(check.Comparison("x", 0.0, 0.1))
    counted = k2.mps.Counters(*[0] * len(dataclasses.fields(k2.mps.Counters)))
    result.timings.append(check.Timing("x", 2.0, 1.0, counted))
    text, page = "\n".join(check.text(result)), check_page.page(result)
    for shown in (text, page):
        assert ("mps (A GPU) is faster for x" in shown) == times_count
        assert ("NOT OF A GPU" in shown) != times_count
        assert ("its times say nothing about speed" in shown) != times_count
    assert ("These are no times of a GPU" in page) != times_count


def test_times_count_only_on_a_mac():
    assert check.Result([], "", "small").times_count == (sys.platform == "darwin")


def test_copies_of_the_input_are_not_counted():
    """The report does not count the copies that move an operation's input to mps.

    For large input, these four operations copy nothing.
    """
    for name in ("ctc_loss", "rnnt_loss_smoothed", "rnnt_loss_pruned", "swoosh_l, swoosh_r"):
        counted = check.measure(name, "large", 0).counted
        assert counted.bytes_to_mps + counted.bytes_to_cpu == 0, name


@pytest.mark.parametrize("word", ["dispatches", "gates", "drains", "bytes copied"])
def test_the_page_explains_the_counts_that_both_tables_show(word):
    result = check.Result([check.Fact("torch", "2.13")], "A GPU", "small")
    result.timings.append(check.measure("ctc_loss", "small", 0))
    page = check_page.page(result)
    assert f"<th>{word}</th>" in page and f"<dt>{word}</dt>" in page
    [head] = [line for line in check.text(result) if line.startswith("milliseconds")]
    assert f"  {word}" in head


@pytest.mark.parametrize("wanted", ["", "it needs a Mac"])
def test_the_page_has_a_column_needed_only_if_the_column_has_text(wanted):
    facts = [check.Fact("torch", "2.13"), check.Fact("mps device", "no", wanted)]
    page = check_page.page(check.Result(facts, "A GPU", "small"))
    assert ("<th>needed</th>" in page) == bool(wanted)


@pytest.mark.skipif(sys.platform == "darwin", reason="no test can change the limits of a Mac's GPU")
def test_a_gpu_that_runs_kernels_with_few_threads():
    """k2 works if pipelines allow only 256 threads.  Metal has such limits for large kernels."""
    variables = {"K2_MPS_FORCE": "metal", "MPS_EMULATOR_MAX_THREADS": "256"}
    result = python("-m", "k2_mac.check", *QUICK, **variables)
    assert result.returncode == check.OK, result.stdout + result.stderr


@pytest.mark.parametrize(
    "system, machine, advice",
    [
        ("Linux", "x86_64", "mps is the GPU of Apple Silicon"),
        ("Darwin", "x86_64", "make an environment with a Python for arm64"),
        ("Darwin", "arm64", "torch finds no mps device"),
    ],
)
def test_without_a_device_the_check_gives_advice(monkeypatch, capsys, system, machine, advice):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: system == "Darwin")
    # Without a device, torch knows no name.
    monkeypatch.delattr(torch.backends.mps, "get_name")
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert check.main(QUICK) == check.NO_DEVICE
    out = capsys.readouterr().out
    assert advice in out and "It works on the CPU" in out


def test_a_k2_without_mps_is_reported(monkeypatch, capsys):
    monkeypatch.setattr(_k2.version, "with_mps", False)
    monkeypatch.setattr(k2, "with_mps", False)
    assert check.main(QUICK) == check.NO_DEVICE
    out = capsys.readouterr().out
    assert "built without mps" in out and "k2 with mps: no\n" in out


def _wrong_on_mps(function, change):
    def wrong(*args, **kwargs):
        result = function(*args, **kwargs)
        return change(result) if result.device.type == "mps" else result

    return wrong


def _with_nan_as_gradient(loss):
    """Python's max() of the differences would drop this NaN, which is not the first difference."""
    loss.register_hook(lambda grad: grad * float("nan"))
    return loss


@pytest.mark.parametrize(
    "change",
    [
        lambda loss: loss * 1.01,
        lambda loss: loss * float("nan"),
        lambda loss: loss + float("inf"),
        # Returns the same value with another gradient.
        lambda loss: loss + 0.1 * (loss - loss.detach()),
        _with_nan_as_gradient,
    ],
)
def test_a_wrong_loss_is_found(monkeypatch, change):
    monkeypatch.setattr(k2, "ctc_loss", _wrong_on_mps(k2.ctc_loss, change))
    found = check.compare("ctc_loss", "small")
    assert not found.ok and not found.error
    assert check.compare("get_tot_scores", "small").ok


@pytest.mark.parametrize("error", [RuntimeError, TypeError])
def test_an_operation_that_raises_is_found(monkeypatch, capsys, error):
    def refuse(loss):
        raise error("no kernel\nsecond line")

    monkeypatch.setattr(k2, "ctc_loss", _wrong_on_mps(k2.ctc_loss, refuse))
    assert check.main(QUICK) == check.DIFFERS
    out = capsys.readouterr().out
    # `k2mps build` gives the last line as the reason of a failure.
    assert out.splitlines()[-1].startswith("DO NOT TRAIN on this device: ctc_loss raised errors")
    assert "by more than rounding" not in out
    assert "no kernel" in out and "second line" not in out


def test_an_error_without_a_text_has_the_name_of_its_type(monkeypatch):
    def refuse(loss):
        raise AssertionError

    monkeypatch.setattr(k2, "ctc_loss", _wrong_on_mps(k2.ctc_loss, refuse))
    assert check.compare("ctc_loss", "small").error == "AssertionError"


@pytest.mark.skipif(sys.platform == "darwin", reason="only the emulated device fails on request")
def test_a_kernel_that_does_not_complete_is_found(monkeypatch):
    from mps_emulator import failing_command_buffer

    monkeypatch.setenv("K2_MPS_FORCE", "metal")
    with failing_command_buffer():
        found = check.compare("rnnt_loss_smoothed", "small")
    with contextlib.suppress(RuntimeError):  # From 2.15 on, torch reports the failure, too.
        torch.mps.synchronize()
    assert not found.ok and "Caused GPU Timeout" in found.error
    assert check.compare("rnnt_loss_smoothed", "small").ok


def test_a_gradient_that_is_missing_on_mps_is_found(monkeypatch):
    smoothed = k2.rnnt_loss_smoothed

    def without_one_gradient(*, lm, **kwargs):
        return smoothed(lm=lm.detach() if lm.is_mps else lm, **kwargs)

    monkeypatch.setattr(k2, "rnnt_loss_smoothed", without_one_gradient)
    found = check.compare("rnnt_loss_smoothed", "small")
    assert not found.ok and math.isnan(found.difference)


def test_the_page_escapes_what_it_shows():
    result = check.Result([check.Fact("torch", "<script>")], "A GPU", "small")
    result.comparisons.append(check.Comparison("a & b", 1.0, 0.1, "<b>"))
    page = check_page.page(result)
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "a &amp; b" in page and "&lt;b&gt;" in page


INF, NAN = float("inf"), float("nan")


def test_a_difference_is_relative_to_the_largest_number():
    cpu = torch.tensor([100.0, -INF, 0.0])
    assert check._difference(cpu, torch.tensor([101.0, -INF, 0.0])) == 0.01


@pytest.mark.parametrize(
    "cpu, mps",
    [
        ([100.0, -INF, 0.0], [100.0, INF, 0.0]),
        ([100.0, -INF, 0.0], [100.0, 0.0, 0.0]),
        ([100.0, -INF, 0.0], [100.0, -INF, INF]),
        ([100.0, -INF, 0.0], [100.0, NAN, 0.0]),
        ([100.0, NAN, 0.0], [100.0, 0.0, 0.0]),
        ([100.0, NAN, 0.0], [100.0, 1.0, 0.0]),
        ([100.0, NAN, 0.0], [100.0, INF, 0.0]),
        ([100.0, 0.0, 0.0], [100.0, NAN, 0.0]),
        # nan_to_num() replaces an infinity by the largest float64.
        ([100.0, INF], [100.0, torch.finfo(torch.float64).max]),
    ],
)
def test_an_infinity_or_nan_of_one_device_alone_is_a_difference(cpu, mps):
    cpu, mps = (torch.tensor(values, dtype=torch.float64) for values in (cpu, mps))
    assert math.isnan(check._difference(cpu, mps))


def test_equal_infinities_and_nans_are_no_difference():
    for values in ([100.0, -INF, INF, NAN], [NAN, NAN], [INF], []):
        assert check._difference(torch.tensor(values), torch.tensor(values)) == 0
