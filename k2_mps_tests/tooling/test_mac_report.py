"""`make mac-report` writes the commands' output and exit statuses, and no personal names."""

import shlex
import shutil
from importlib.util import find_spec

import click
import pytest
from k2mps.cli import command_line

from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent
KERNELS = "patches/files/k2/csrc/mps/kernels"

# A stand-in for the programs in .venv.  It prints its arguments, and what a report must not
# contain: a line of progress, folders, and the names of a host and a user.
STAND_IN = """\
#!/bin/sh
echo "$MTL_DEBUG_LAYER $*"
echo 'testing parity: 3/80 test_a'
echo "$PWD/x $HOME/y on Adas-Mac.local by ada.lovelace"
case "$*" in *k2_mac.check*) echo k2 differs >&2; exit 3;; *bench*) printf unfinished; esac
"""


@pytest.fixture(params=[(), ("--quick",)])
def report(request, tmp_path):
    """A report in which the step `check` failed; and whether this is a quick report."""
    programs = {".venv/bin/k2mps": STAND_IN, ".venv/bin/python": STAND_IN}
    programs |= {"bin/id": "#!/bin/sh\necho ada.lovelace\n"}
    programs |= {"bin/uname": "#!/bin/sh\necho Adas-Mac.local\n"}
    kernels = {f"{KERNELS}/{name}.metal": "" for name in ("add", "dense_forward")}
    support.write(tmp_path, {**programs, **kernels})
    for name in programs:
        (tmp_path / name).chmod(0o755)
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci/mac-report", tmp_path / "ci")
    variables = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": "/Users/ada.lovelace"}
    result = support.ran(tmp_path / "ci/mac-report", *request.param, env=variables)
    assert result.returncode == 1 and result.stdout.endswith("\nwrong: check\n")
    text = (tmp_path / "build/mac-report.txt").read_text()
    assert str(tmp_path) not in text
    return text, bool(request.param)


def test_the_report_is_what_the_commands_print_without_names(report):
    text, quick = report
    for name in ("ada.lovelace", "Adas-Mac", "testing parity"):
        assert name not in text
    assert "\n<project>/x <home>/y on <host> by <user>\n" in text
    assert "\nunfinished\nexit status: 0\n" in text
    # The report goes on after a step that fails.
    assert "\nk2 differs\nexit status: 3\n" in text
    verdicts = text.split("\n== verdicts\n")[1].split("\n\n")[0].splitlines()
    assert verdicts[:3] == ["ok     doctor", "ok     build", "ok     machine"]
    assert [line for line in verdicts if line[:5] == "WRONG"] == ["WRONG  check"]
    assert verdicts[-1] == "ok     calibration"
    # The report runs each file of kernels twice: without Metal's validation, and with it.
    for name in ("add", "dense_forward"):
        found = [f"ok     kernels, {name}", f"ok     kernels, {name}, validated"]
        assert [line for line in verdicts if name in line] == found * (name != "add" or not quick)
    assert "\n1 -m k2_mps_tests.kernels dense_forward\n" in text


def test_each_step_of_the_report_is_a_command_that_exists(report):
    for line in report[0].splitlines():
        if not line.startswith("$ "):
            continue
        words = [word for word in shlex.split(line)[1:] if "=" not in word and word != "env"]
        if words[0].endswith("k2mps"):
            command = command_line.main.commands[words[1]]
            with click.Context(command_line.main) as parent:
                command.make_context(words[1], words[2:], parent)
        elif words[2].startswith("k2."):
            file = f"{words[2].replace('.', '/')}.py"
            assert (ROOT / "patches/files/k2/python" / file).exists()
        else:
            assert find_spec(words[2])
