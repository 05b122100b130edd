"""`make mac-report` survives an operation and a timing that fail; the other times are there."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# In Metal, an operation fails, as if Metal's compiler refused its kernel.  On the host, the wait
# that ends the time of this operation fails, as an event of torch can.
PLUGIN = """

_right, _synchronize, _flags = k2.mutual_information_recursion, torch.mps.synchronize, []


def _wrong(px, *arguments, **options):
    if px.device.type == "mps" and os.environ[FORCE] == "metal":
        raise RuntimeError("Metal cannot compile mutual_information.metal")
    if px.device.type == "mps":
        _flags.append("raise")
    return _right(px, *arguments, **options)


def _raising():
    if _flags:
        raise RuntimeError("End event 2 was not recorded after start event 1")
    _synchronize()


k2.mutual_information_recursion, torch.mps.synchronize = _wrong, _raising
"""


@pytest.mark.k2
def test_an_operation_and_a_timing_that_fail_cost_only_themselves(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("k2_mps_tests", "patches/files/k2/csrc/mps"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    # The suite, not .venv, knows where k2 is.
    folders = [Path(find_spec("_k2").origin).parent, Path(find_spec("k2").origin).parents[1]]
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/sitecustomize.py").write_text(
        f"import sys\nsys.path[:0] = {list(map(str, folders))}\n"
    )
    with open(tmp_path / "k2_mps_tests/benchmarks/bench.py") as file:
        text = file.read()
    main = 'if __name__ == "__main__":'
    assert text.count(main) == 1
    (tmp_path / "k2_mps_tests/benchmarks/bench.py").write_text(text.replace(main, PLUGIN + main))
    subprocess.run(
        [sys.executable, "-m", "k2_mps_tests.report", "--only", "times/size 1,50,10"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdout=subprocess.DEVNULL,
    )
    [record] = tmp_path.glob("build/mac-report/*/record.jsonl")
    lines = list(map(json.loads, record.read_text().splitlines()))
    verdicts = {line["item"]: line for line in lines if "verdict" in line}
    operation = "size 1,50,10: mutual_information_recursion with gradient, 1,50,10, "
    bad = {item: line["why"] for item, line in verdicts.items() if line["verdict"] != "ok"}
    assert bad.keys() == {operation + "mps-metal", operation + "mps-host"}
    assert "Metal cannot compile" in bad[operation + "mps-metal"]
    assert "End event 2 was not recorded" in bad[operation + "mps-host"]
    # The proof that k2 is of this build came first.
    assert verdicts["library"]["verdict"] == "ok"
    timed = {line["item"] for line in lines if line["step"] == "times" and "measured" in line}
    assert timed == verdicts.keys() - bad.keys() - {"library", "size 1,50,10"}
    assert operation + "cpu" in timed and len(timed) >= 3 * 6 - 2
