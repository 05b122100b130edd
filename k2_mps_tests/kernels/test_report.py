"""`make mac-report` survives kernels that fail, and the record has the reason and all other items.

Each test plants a fault into a copy of the kernels, and runs the report on this copy.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from k2_mps_tests.kernels import sources
from k2_mps_tests.report import questions, tasks

ROOT = sources.TESTS.parent
KERNELS = "patches/files/k2/csrc/mps/kernels"
KERNELS_OF = {
    "dense_fsa_vec": ("dense_fsa_vec", "dense_fsa_vec_grad"),
    "graph_index": ("graph_index",),
    "lattice_grad": ("dense_grad", "graph_grad"),
}
DRIVER, PLAIN = "compiler/driver", "kernels/plain, first case"


@pytest.fixture
def project(tmp_path):
    """A copy of the project with three files of kernels."""
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("k2_mps_tests", "patches/files/k2/csrc", "patches/files/cmake"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for path in [*tmp_path.glob(f"{KERNELS}/*.metal"), *tmp_path.rglob("checks/*.metal")]:
        if path.stem not in KERNELS_OF:
            path.unlink()
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    return tmp_path


def _command(*only):
    words = [word for one in only for word in ("--only", one)]
    return [sys.executable, "-m", "k2_mps_tests.report", *words]


def _environment():
    """Returns an environment in which Python does not flush its output by itself."""
    left_out = ("PYTHONUNBUFFERED", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def _report(project, *only, options=()):
    """Runs steps of the report; returns {item: its last verdict}, and the record's lines."""
    command = [*_command(*only), *options]
    subprocess.run(command, cwd=project, env=_environment(), stdout=subprocess.DEVNULL)
    return _verdicts(project)


def _lines(project):
    [record] = project.glob("build/mac-report/*/record.jsonl")
    return list(map(json.loads, record.read_text().splitlines()))


def _verdicts(project):
    return {line["item"]: line for line in _lines(project) if "verdict" in line}


def _bad(verdicts):
    return {item for item, line in verdicts.items() if line["verdict"] != "ok"}


def _items(names, cases="first case"):
    """Returns the items of the step `kernels` for files of kernels, and the task itself."""
    kernels = {f"plain, {cases}: {name} {one}" for name in names for one in KERNELS_OF[name]}
    return kernels | {f"plain, {cases}", *(f"plain, {cases}: {name}.metal" for name in names)}


def _append(path, text):
    with open(path, "a") as file:
        file.write(text)


def test_compile_errors_in_three_files(project):
    for name in KERNELS_OF:
        bad = f"\nkernel void broken(device float *x) {{ x[0] = no_{name}; }}\n"
        _append(project / KERNELS / f"{name}.metal", bad)
    right = ROOT / "k2_mps_tests/kernels/checks/numbers.metal"
    shutil.copy(right, project / "k2_mps_tests/kernels/checks")
    verdicts = _report(project, DRIVER, PLAIN)
    wrong = {f"driver: {name}" for name in KERNELS_OF}
    wrong |= {f"plain, first case: {name}.metal" for name in KERNELS_OF}
    assert _bad(verdicts) == wrong
    for item in wrong:
        name = item.split(": ")[1].removesuffix(".metal")
        assert f"no_{name}" in verdicts[item]["output"]
    assert verdicts.keys() - wrong == {
        "driver",
        "driver: numbers",
        "plain, first case",
        "plain, first case: numbers.metal",
        "plain, first case: numbers atomics",
        "plain, first case: numbers simdgroups",
    }


def test_a_compile_error_in_one_kernel(project):
    path = project / KERNELS / "lattice_grad.metal"
    text = path.read_text()
    begin = text.index("{", text.index("kernel void graph_grad("))
    path.write_text(f"{text[: begin + 1]} float none = unknown_name;{text[begin + 1 :]}")
    verdicts = _report(project, DRIVER)
    assert _bad(verdicts) == {"driver: lattice_grad"}
    assert "undeclared identifier 'unknown_name'" in verdicts["driver: lattice_grad"]["output"]
    assert verdicts.keys() == {"driver", *(f"driver: {name}" for name in KERNELS_OF)}
    # The record has the pipelines of all other files.
    measured = {line["measured"].get("kernel") for line in _lines(project) if "measured" in line}
    assert measured == {None, "dense_fsa_vec", "dense_fsa_vec_grad", "graph_index"}


def test_an_abort_in_the_ninth_launch_of_a_kernel(project):
    plugin = """

_launch, _kernels = launch, []


def launch(library, case, *arguments):
    import os

    _kernels.append(case.kernel)
    if _kernels.count("dense_fsa_vec_grad") == 9:
        os.abort()
    return _launch(library, case, *arguments)
"""
    _append(project / "k2_mps_tests/kernels/on_mps.py", plugin)
    verdicts = _report(project, "kernels/plain, all cases")
    bad = "plain, all cases: dense_fsa_vec dense_fsa_vec_grad"
    assert _bad(verdicts) == {bad} and verdicts.keys() == _items(KERNELS_OF, "all cases")
    assert verdicts[bad]["verdict"] == "crashed"
    # What the process printed before, and where it was.
    assert "SIGABRT" in verdicts[bad]["why"] and "in launch" in verdicts[bad]["output"]


def test_a_crash_of_the_compiler_costs_only_its_file(project):
    plugin = """

_text = text


def text(name):
    if name == "graph_index":
        os.abort()
    return _text(name)
"""
    _append(project / "k2_mps_tests/kernels/sources.py", plugin)
    verdicts = _report(project, PLAIN)
    bad = "plain, first case: graph_index.metal"
    assert _bad(verdicts) == {bad} and verdicts[bad]["verdict"] == "crashed"
    assert verdicts.keys() == _items(KERNELS_OF) - {"plain, first case: graph_index graph_index"}


def _add_to_dense_fsa_vec(project, statement):
    """Adds a statement to the kernel dense_fsa_vec."""
    path = project / KERNELS / "dense_fsa_vec.metal"
    text = path.read_text()
    begin = "const int row = params.first_rows[0] + int(group);"
    assert text.count(begin) == 1
    path.write_text(text.replace(begin, f"{begin}\n  {statement}"))


def test_an_access_outside_of_a_buffer_that_changes_no_result(project):
    # With Metal's validation, such a load gives zero.
    _add_to_dense_fsa_vec(project, "if (log_probs[1 << 20] != 0) return;")
    verdicts = _report(project, "kernels/validated, first case")
    bad = "validated, first case: dense_fsa_vec dense_fsa_vec"
    assert _bad(verdicts) == {bad}
    assert verdicts[bad]["why"].startswith("Metal's validation reports an access outside")
    assert verdicts.keys() == {item.replace("plain", "validated") for item in _items(KERNELS_OF)}


@pytest.mark.skipif(sys.platform == "darwin", reason="the screen would freeze")
def test_a_hang(project):
    _add_to_dense_fsa_vec(project, "for (volatile int on = 1; on;) {}")
    # 30 seconds are enough for the start of torch on a busy machine.
    verdicts = _report(project, PLAIN, options=("--limit", "30"))
    bad = "plain, first case: dense_fsa_vec dense_fsa_vec"
    assert _bad(verdicts) == {bad} and verdicts.keys() == _items(KERNELS_OF)
    assert verdicts[bad]["verdict"] == "hung" and "in launch" in verdicts[bad]["output"]


def test_a_kill_at_a_random_time_and_a_resume(project):
    seconds = random.uniform(0, 20)
    print(f"killed after {seconds} s")
    how = {"cwd": project, "env": _environment(), "stdout": subprocess.DEVNULL}
    process = subprocess.Popen(_command(DRIVER, PLAIN), **how)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    records = list(project.glob("build/mac-report/*/record.jsonl"))
    before = [line for line in records[0].read_bytes().split(b"\n")[:-1]] if records else []
    verdicts = _report(project, DRIVER, PLAIN)
    assert not _bad(verdicts)
    assert verdicts.keys() == _items(KERNELS_OF) | {
        "driver",
        *(f"driver: {name}" for name in KERNELS_OF),
    }
    # The record is only appended to, and what was done before is not done again.
    [record] = project.glob("build/mac-report/*/record.jsonl")
    lines = record.read_bytes().split(b"\n")
    assert lines[: len(before)] == before
    done = {json.loads(line)["item"] for line in before if b'"verdict"' in line}
    assert not done & {json.loads(line)["item"] for line in lines[len(before) : -1] if line}


def test_the_answer_about_compiled_kernels(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(questions, "EMULATED", "")
    monkeypatch.setattr(questions, "METALLIBS", tmp_path)
    monkeypatch.setattr(sources, "names", lambda: ["graph_index", "swoosh"])
    with pytest.raises(SystemExit):
        questions.metallib()
    assert "build/metallibs lacks graph_index, swoosh" in capsys.readouterr().out
    for name in sources.names():
        tmp_path.joinpath(f"{name}.metallib").write_bytes(b"MTLB")
    assert not questions.metallib()
    assert "loads 0 of 2 files" in capsys.readouterr().out


def test_each_question_is_a_task():
    assert list(questions.QUESTIONS) == list(tasks.NEEDS)
    # The kernels that fail on a Mac compile.
    library = torch.mps.compile_shader(questions.BAD_KERNELS)
    assert set(dir(library)) == {"outside", "endless"}
