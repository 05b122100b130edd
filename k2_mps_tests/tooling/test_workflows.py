"""Checks the rights, the builds and the steps of GitHub's workflows.

Only GitHub can run the workflows.  The tests check them without running them.
"""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from k2mps.core import errors, pins
from k2mps.series import series_file

from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
# The workflows that the series adds to k2.
OF_K2 = sorted((ROOT / "patches/files/.github/workflows").glob("*.yml"))
# The workflows that may write issues, each with the condition of the job that does so.
ISSUES = {
    "follow.yml": "needs.carry.outputs.findings != ''",
    "torch.yml": "needs.read.outputs.news == 'true'",
}
# The exit statuses with which the programs of these workflows report findings.
FINDINGS = {"follow.yml": errors.CheckFailedError.exit_code, "torch.yml": 1}
EXPRESSION = re.compile(r"\$\{\{[^}]*\}\}")
PROGRAM = ".venv/bin/k2mps "


def loaded(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> list[dict]:
    return [step for job in loaded(path)["jobs"].values() for step in job["steps"]]


def scripts() -> list[str]:
    found = [step["run"] for path in WORKFLOWS for step in steps(path) if "run" in step]
    assert len(found) > 10
    return found


@pytest.mark.parametrize("name", sorted(ISSUES))
def test_findings_do_not_fail_the_job_that_looks_for_them(name):
    accepted = re.findall(r"case \$status in 0 \| (\d+)\) ;;", (FOLDER / name).read_text())
    assert accepted == [str(FINDINGS[name])]


@pytest.mark.parametrize("status", [0, 1, 3])
def test_the_step_that_reads_torch_fails_if_the_program_fails(status, tmp_path):
    """The second run of the program prints the findings as text; status 1 is a finding."""
    [step] = [step for step in steps(FOLDER / "torch.yml") if step.get("id") == "read"]
    python = f"""#!/bin/sh
case $* in
  *--json) echo '{{"version": "9", "known": "9", "facts": []}}' ;;
  *) echo "torch 9"; exit {status} ;;
esac
"""
    support.write(tmp_path, {".venv/bin/python": python})
    (tmp_path / ".venv/bin/python").chmod(0o755)
    environment = {**os.environ, "GITHUB_OUTPUT": str(tmp_path / "output")}
    ran = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment)
    assert ran.returncode == (0 if status < 2 else 1)
    assert "torch 9\n" in (tmp_path / "facts.md").read_text()


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.name)
def workflow(request) -> Path:
    return request.param


@pytest.mark.parametrize(
    "linter",
    [
        # zizmor checks the form of all keys, and security: for example, a workflow must name each
        # action by its commit.
        ["zizmor", "--offline", "--no-progress", "--color=never"],
        # actionlint checks expressions and their types, the key `needs` of jobs, runners and
        # inputs.  With these options, it runs neither shellcheck nor pyflakes.
        ["actionlint", "-no-color", "-oneline", "-shellcheck=", "-pyflakes="],
    ],
    ids=lambda linter: linter[0],
)
@pytest.mark.parametrize("path", [*WORKFLOWS, *OF_K2], ids=lambda path: path.name)
def test_linters_find_nothing(path, linter):
    support.output(Path(sys.prefix, "bin", linter[0]), *linter[1:], path, cwd=ROOT)


def triggers(path: Path) -> dict:
    # YAML 1.1 reads the key "on" as true.
    return loaded(path)[True]


def test_each_change_runs_all_suites():
    path = FOLDER / "ci.yml"
    for event in ("push", "pull_request"):
        assert triggers(path)[event] is None, "no path and no branch is left out"
    assert "ci/run" in [step.get("run") for step in steps(path)]


def test_every_group_is_checked_without_the_groups_after_it():
    job = loaded(FOLDER / "ci.yml")["jobs"]["pull-requests"]
    assert job["strategy"]["matrix"]["group"] == [
        *filter(series_file.is_for_k2, series_file.GROUPS)
    ]


def test_every_change_except_of_pages_makes_wheels():
    for event in ("push", "pull_request"):
        found = triggers(FOLDER / "wheels.yml")[event]
        assert [found[key] for key in found if "paths" in key] == [["docs/**", "**.md"]]


def test_no_release_waits_for_a_result_on_mps():
    """GitHub's Macs have a virtual GPU, which torch may not accept."""
    jobs = loaded(FOLDER / "wheels.yml")["jobs"]
    needed, waiting = set(), ["release"]
    while waiting:
        name = waiting.pop()
        needed.add(name)
        needs = jobs[name].get("needs", [])
        waiting += [needs] if isinstance(needs, str) else needs
    assert needed == {"release", "wheel", "reproduce", "index", "plan"}
    of_release = [step.get("run", "") for name in needed for step in jobs[name]["steps"]]
    assert [run for run in of_release if "suites-on-mps" in run or "make test" in run] == []
    [tried] = [run for run in of_release if "ci/try-wheel" in run]
    assert tried.startswith("ci/try-wheel --mps-may-be-wrong ")
    assert jobs["on-mps"]["continue-on-error"] is True


def test_the_notes_of_a_release_have_the_commands_that_install_it(tmp_path):
    [step] = [step for step in steps(FOLDER / "wheels.yml") if "gh release" in step.get("run", "")]
    gh = "#!/bin/sh\necho $*; cat notes.md\n"
    names = [f"k2-1.24+mps.cpu.torch{torch}-cp312-x.whl" for torch in ("2.13.0", "2.14.1")]
    support.write(tmp_path, {"bin/gh": gh, **{f"dist/{name}": "" for name in names}})
    (tmp_path / "bin/gh").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "GITHUB_REF_NAME": "v1",
        "GITHUB_REPOSITORY": "ada/k2-mac",
        "GITHUB_REPOSITORY_OWNER": "ada",
    }
    said = support.output("bash", "-e", "-c", step["run"], cwd=tmp_path, env=environment)
    files = " ".join(f"dist/{name}" for name in names)
    assert said.startswith(f"release create v1 {files} --repo ada/k2-mac ")
    for torch in ("2.13.0", "2.14.1"):
        page = "https://ada.github.io/k2-mac/mps.html"
        assert f"\npip install k2==1.24+mps.cpu.torch{torch} -f {page}\n" in said


def test_a_push_takes_at_most_four_macs():
    """A fork's first push to main starts all workflows."""
    wheels = loaded(FOLDER / "wheels.yml")["jobs"]
    [choose] = [step for step in wheels["plan"]["steps"] if step.get("id") == "plan"]
    every = "github.ref_type == 'tag' || github.event_name == 'workflow_dispatch'"
    assert f"({every}) && '--all'" in choose["env"]["ALL"]
    macs = [entry["runner"] for entry in matrix() if entry["runner"].startswith("macos")]
    macs += wheels["on-mps"]["strategy"]["matrix"]["runner"]
    macs += [loaded(FOLDER / "mac-report.yml")["jobs"]["report"]["runs-on"]]
    assert macs == ["macos-15", "macos-15", "macos-26", "macos-15"]


def test_no_job_may_write_except_for_issues_and_releases(workflow):
    text = loaded(workflow)
    assert text["permissions"] == {}
    for name, job in text["jobs"].items():
        assert job["permissions"], name
        assert job["timeout-minutes"], name
        writes = {right for right, value in job["permissions"].items() if value == "write"}
        if workflow.name in ISSUES and writes == {"issues"}:
            # A job that may write issues runs no code of the repository or of other jobs.
            assert job["if"] == ISSUES[workflow.name]
            uses = [step["uses"].split("@")[0] for step in job["steps"] if "uses" in step]
            assert uses == ["actions/download-artifact"]
        elif writes:
            assert job["if"] == "github.ref_type == 'tag'", name


@pytest.mark.parametrize("script", scripts())
def test_each_step_is_a_script_that_bash_can_parse(script):
    # GitHub would paste an expression into the script without quotes.
    assert not EXPRESSION.search(script)
    support.output("bash", "-n", input=script)


def commands() -> list[str]:
    found = []
    for script in scripts():
        joined = script.replace("\\\n", " ")
        found += re.findall(rf"{re.escape(PROGRAM)}([a-z][^\n)|]*)", joined)
    assert len(found) > 3
    return found


@pytest.mark.parametrize("command", commands())
def test_the_tool_accepts_the_command(command):
    # Leaves out each variable of the shell, because its value is a further option or empty.
    words = [word for word in command.split() if not word.startswith("$")]
    support.output(sys.executable, "-m", "k2mps", *words, "--help", cwd=ROOT)


def test_the_programs_of_the_tests_exist():
    modules = {name for text in scripts() for name in re.findall(r"python -m (k2\S+)", text)}
    assert modules == {"k2_mps_tests.kernels", "k2_mps_tests.macos_torch", "k2_mps_tests.mutation"}
    assert all(map(find_spec, modules))


def matrix(*options: str) -> list[dict[str, str]]:
    text = support.output(sys.executable, ROOT / "ci/wheel_matrix.py", *options)
    return json.loads(text.removeprefix("matrix="))["include"]


def pairs(*options: str) -> set[tuple[str, str]]:
    return {(entry["python"], entry["torch"]) for entry in matrix(*options)}


def test_a_release_has_wheels_for_each_python_and_torch():
    config = pins.load(ROOT / "upstream.toml")
    pythons = ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]
    wanted = {(python, torch) for python in pythons for torch in config.torch.supported}
    # PyPI has no wheels of torch for these pairs.
    missing = {("3.10", "2.15.0"), ("3.15", "2.13.0"), ("3.15", "2.14.1")}
    assert pairs("--all") == wanted - missing


def test_a_pull_request_makes_the_wheels_of_one_torch():
    config = pins.load(ROOT / "upstream.toml")
    [(_, torch)] = pairs()
    assert pairs() <= pairs("--all") and torch == config.torch.mac


def test_a_pull_request_takes_one_mac():
    macs = [
        name
        for path in WORKFLOWS
        if "pull_request" in triggers(path)
        for name, job in loaded(path)["jobs"].items()
        if job["runs-on"].startswith("macos")
    ]
    runners = [entry["runner"] for entry in matrix()]
    assert (macs, runners) == ([], ["macos-15", "ubuntu-24.04"])


# ---- ci/


def table_of(heading: str) -> list[list[str]]:
    """Returns the cells of each row of the table below a heading in ci/README.md."""
    section = (ROOT / "ci/README.md").read_text().split(heading)[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_explains_each_file_of_ci():
    explained = {name.strip("`") for name, _ in table_of("# What CI runs")}
    files = {path.name for path in (ROOT / "ci").iterdir() if path.name != "__pycache__"}
    assert explained == files - {"README.md"}
    caller = (ROOT / ".ci/run").read_text()
    assert "../ci/run" in caller


def test_the_page_quotes_what_makes_each_product():
    """A cell that links a file has the form "[NAME](FILE): `QUOTE`, `QUOTE`; REMARK"."""
    quotes = []
    for _, cell in table_of("## Each product is made from the real tree"):
        for file, text in re.findall(r"\[[^]]+\]\(([^)]+)\): ([^;]+)", cell):
            script = " ".join((ROOT / "ci" / file).read_text().replace("\\\n", " ").split())
            quotes += [(file, quote, quote in script) for quote in re.findall("`([^`]+)`", text)]
    assert len(quotes) > 20
    assert [quote for quote in quotes if not quote[2]] == []
