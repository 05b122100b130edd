"""Runs mps_emulator.pytest_plugin on a small suite."""

import subprocess
import sys

SUITE = """
import ctypes

import pytest
import torch


@pytest.fixture(scope="module")
def tensor():
    return torch.ones(4, device="mps")


def test_before(tensor):
    assert tensor.sum().item() == 4


def test_misuse(tensor):
    print("before the end")
    ctypes.string_at(tensor.data_ptr(), 1)


def test_failure(tensor):
    assert tensor.sum().item() == 5


def test_after(tensor):
    tensor.requires_grad_()
    tensor.sum().backward()
    assert tensor.grad.cpu().tolist() == [1] * 4


def test_seed(tensor):
    torch.manual_seed(230)
    first = torch.randn(3, device="mps")
    torch.manual_seed(230)
    assert torch.equal(first, torch.randn(3, device="mps"))


@pytest.mark.skip(reason="some")
def test_skipped():
    pass
"""


def run(folder, *options):
    (folder / "test_suite.py").write_text(SUITE)
    command = "-m pytest -p mps_emulator.pytest_plugin -p no:cacheprovider".split()
    return subprocess.run(
        [sys.executable, *command, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_misuse_fails_one_test(tmp_path):
    done = run(tmp_path, "--mps-isolate")
    assert "2 failed, 3 passed, 1 skipped" in done.stdout, done.stdout
    assert done.returncode == 1
    assert "mps emulator: fatal: the CPU dereferenced the handle of" in done.stdout
    assert "before the end" in done.stdout
    assert "assert 4.0 == 5" in done.stdout


def test_without_it_the_process_ends(tmp_path):
    done = run(tmp_path)
    assert done.returncode < 0
