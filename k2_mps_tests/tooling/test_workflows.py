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
# The action that prepares the jobs of the workflows.
PREPARE = ROOT / ".github/actions/prepare/action.yml"
# The workflows that the series adds to k2.
K2_WORKFLOWS = sorted((ROOT / "patches/files/.github/workflows").glob("*.yml"))
# The workflow that writes issues, as other workflows name it.
ISSUE = "$/.github/workflows/issue.yml"
# The workflows that call it, each with the condition of the job that does so.
ISSUES = {
    "follow.yml": "needs.carry.outputs.findings != ''",
    "torch.yml": "needs.read.outputs.news == 'true'",
}
# The workflows whose programs have findings, and the exit status that means so.
WITH_FINDINGS = ("follow.yml", "mutants.yml", "torch.yml")
FINDINGS = errors.CheckFailedError.exit_code
EXPRESSION = re.compile(r"\$\{\{[^}]*\}\}")
PROGRAM = ".venv/bin/k2mps "


def loaded(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> list[dict]:
    return [step for job in loaded(path)["jobs"].values() for step in job.get("steps", ())]


def scripts() -> list[str]:
    every = [step for path in WORKFLOWS for step in steps(path)]
    every += loaded(PREPARE)["runs"]["steps"]
    found = [step["run"] for step in every if "run" in step]
    assert len(found) > 10
    return found


@pytest.mark.parametrize("name", WITH_FINDINGS)
def test_findings_do_not_fail_the_job_that_looks_for_them(name):
    accepted = re.findall(r"ci/findings (\d+) ", (FOLDER / name).read_text())
    assert set(accepted) == {str(FINDINGS)}


@pytest.mark.parametrize(
    "status, found", [(0, "findings=false\n"), (7, "findings=true\n"), (1, "")]
)
def test_one_status_of_a_program_means_findings(status, found, tmp_path):
    environment = {**os.environ, "GITHUB_OUTPUT": str(tmp_path / "output")}
    (tmp_path / "output").touch()
    command = [ROOT / "ci/findings", "7", "bash", "-c", f"echo said; exit {status}"]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert (ran.returncode, ran.stdout) == (status if not found else 0, "said\n")
    assert (tmp_path / "output").read_text() == found


@pytest.mark.parametrize("status", [0, FINDINGS, 1, 3])
def test_the_step_that_reads_torch_fails_if_the_program_fails(status, tmp_path):
    """The second run of the program prints the findings as text; status 1 is a traceback."""
    [step] = [step for step in steps(FOLDER / "torch.yml") if step.get("id") == "read"]
    python = f"""#!/bin/sh
case $* in
  *--json) echo '{{"version": "9", "known": "9", "facts": []}}' ;;
  *) echo "torch 9"; exit {status} ;;
esac
"""
    findings = (ROOT / "ci/findings").read_text()
    support.write(tmp_path, {".venv/bin/python": python, "ci/findings": findings})
    for name in (".venv/bin/python", "ci/findings"):
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "GITHUB_OUTPUT": str(tmp_path / "output")}
    ran = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]], cwd=tmp_path, env=environment
    )
    assert ran.returncode == (0 if status == FINDINGS else status)
    assert "torch 9\n" in (tmp_path / "facts.md").read_text()


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.name)
def workflow(request) -> Path:
    return request.param


@pytest.mark.parametrize("path", [*WORKFLOWS, PREPARE, *K2_WORKFLOWS], ids=lambda path: path.name)
def test_zizmor_finds_nothing(path):
    """zizmor checks the form of all keys, and security: a workflow names each action by commit."""
    program = Path(sys.prefix, "bin/zizmor")
    support.output(program, "--offline", "--no-progress", "--color=never", path, cwd=ROOT)


@pytest.mark.parametrize("path", [*WORKFLOWS, *K2_WORKFLOWS], ids=lambda path: path.name)
def test_actionlint_finds_nothing(path):
    """actionlint checks expressions and their types, the key `needs` of jobs, runners and inputs.

    With these options, actionlint runs neither shellcheck nor pyflakes.
    """
    program = Path(sys.prefix, "bin/actionlint")
    support.output(program, "-no-color", "-oneline", "-shellcheck=", "-pyflakes=", path, cwd=ROOT)


def triggers(path: Path) -> dict:
    # YAML 1.1 reads the key "on" as true.
    return loaded(path)[True]


GH = """#!/bin/sh
echo $* >> "$SAID"
[ "$2" != list ] || echo '[{"number": 7, "title": "as before"}, {"number": 8, "title": "old"}]'
"""


@pytest.mark.parametrize(
    "title, close, commands",
    [
        ("new", False, ["issue create --title new --body-file text.md"]),
        ("new", True, []),
        ("old", False, ["issue edit 8 --body-file text.md"]),
        ("old", True, ["issue edit 8 --body-file text.md", "issue close 8"]),
    ],
)
def test_one_issue_of_a_title_is_opened_then_updated_then_closed(title, close, commands, tmp_path):
    [step] = [step for step in steps(FOLDER / Path(ISSUE).name) if "run" in step]
    support.write(tmp_path, {"bin/gh": GH})
    (tmp_path / "bin/gh").chmod(0o755)
    values = {
        **dict.fromkeys(step["env"], "x"),
        "CLOSE": str(close).lower(),
        "STATE": "open",
        "TEXT": "text.md",
        "TITLE": title,
        "SAID": str(tmp_path / "said"),
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
    }
    # GitHub runs each step so.
    support.output("bash", "-e", "-c", step["run"], cwd=tmp_path, env=values)
    listed, *others = (tmp_path / "said").read_text().splitlines()
    assert listed.startswith("issue list --state open ") and others == commands


@pytest.mark.parametrize("name", sorted(ISSUES))
def test_the_text_of_an_issue_is_in_the_artifact_of_the_job_before(name):
    jobs = loaded(FOLDER / name)["jobs"]
    [call] = [job for job in jobs.values() if job.get("uses") == ISSUE]
    [artifact] = [
        step["with"]
        for step in jobs[call["needs"]]["steps"]
        if "upload-artifact" in step.get("uses", "")
    ]
    assert call["with"]["artifact"] == artifact["name"]
    assert call["with"]["text"] in artifact["path"].split()


def test_each_change_runs_all_suites():
    path = FOLDER / "ci.yml"
    for event in ("push", "pull_request"):
        assert triggers(path)[event] is None, "no path and no branch is left out"
    assert "ci/run" in [step.get("run") for step in steps(path)]


def test_every_group_is_checked_without_the_groups_after_it():
    jobs = loaded(FOLDER / "ci.yml")["jobs"]
    assert jobs["plan"]["outputs"]["groups"] == "${{ steps.plan.outputs.groups }}"
    assert jobs["pull-requests"]["strategy"]["matrix"] == {
        "group": "${{ fromJSON(needs.plan.outputs.groups) }}"
    }
    _, groups = series_file.parse((ROOT / "patches/series").read_bytes())
    every = [*dict.fromkeys(groups.values())]
    assert json.loads(planned()["groups"]) == [*filter(series_file.is_for_k2, every)]
    assert len(every) > 20


@pytest.mark.parametrize(
    "name, events", [("wheels", ["push", "pull_request"]), ("mac-report", ["push"])]
)
def test_every_change_except_of_pages_takes_a_mac(name, events):
    for event in events:
        found = triggers(FOLDER / f"{name}.yml")[event]
        assert [found[key] for key in found if "paths" in key] == [["docs/**", "**.md"]]


def test_the_wheel_on_mps_has_the_torch_of_the_suites_on_mps():
    """After a tag, there are wheels for each torch.  The suites build k2 for a Mac's torch."""
    jobs = loaded(FOLDER / "wheels.yml")["jobs"]
    [download] = [step for step in jobs["on-mps"]["steps"] if "download" in step.get("uses", "")]
    wheel = "native-${{ needs.plan.outputs.python }}-${{ needs.plan.outputs.torch }}"
    assert download["with"]["name"] == wheel
    assert jobs["plan"]["outputs"]["torch"] == "${{ steps.plan.outputs.torch }}"
    [uploaded] = [step for step in jobs["wheel"]["steps"] if "upload" in step.get("uses", "")]
    parts = "${{ matrix.kind }}-${{ matrix.python }}-${{ matrix.torch }}"
    assert uploaded["with"]["name"] == parts
    for options in ([], ["--all"]):
        found = planned(*options)
        assert found["torch"] == pins.load(ROOT / "upstream.toml").torch.mac
        assert (found["python"], found["torch"]) in pairs(*options)


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
    release_runs = [step.get("run", "") for name in needed for step in jobs[name]["steps"]]
    assert [run for run in release_runs if "suites-on-mps" in run or "make test" in run] == []
    [tried] = [run for run in release_runs if "ci/try-wheel" in run]
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


def test_the_page_of_wheels_is_searched_for_the_tags_of_one_of_them(tmp_path):
    [run] = [step["run"] for step in steps(FOLDER / "wheels.yml") if "pip download" in str(step)]
    wheel = "dist/k2-1.24+mps.cpu.torch2.15.0-cp313-cp313-macosx_15_0_arm64.whl"
    programs = {f".venv/bin/{name}": "#!/bin/sh\necho $*\n" for name in ("k2mps", "python")}
    support.write(tmp_path, {**programs, wheel: ""})
    for name in programs:
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "RUNNER_TEMP": "temp"}
    said = support.output("bash", "-e", "-c", run, cwd=tmp_path, env=environment)
    assert " --platform macosx_15_0_arm64 --python-version 313 " in said


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


def test_a_step_fails_if_a_program_of_a_pipe_fails(workflow):
    """GitHub runs a step without `shell` as `bash -e`, but `shell: bash` with pipefail, too."""
    assert loaded(workflow)["defaults"] == {"run": {"shell": "bash"}}
    assert not [step for step in steps(workflow) if "shell" in step]


def test_a_newer_push_can_cancel_each_job(workflow):
    """GitHub does not cancel a job whose condition is `always()`."""
    jobs = loaded(workflow)["jobs"].values()
    assert not [job for job in jobs if "always()" in job.get("if", "")]


def test_no_job_may_write_except_for_issues_and_releases(workflow):
    text = loaded(workflow)
    assert text["permissions"] == {}
    for name, job in text["jobs"].items():
        assert job["permissions"], name
        writes = {right for right, value in job["permissions"].items() if value == "write"}
        if "uses" in job:
            assert (job["uses"], writes) == (ISSUE, {"issues"})
            assert job["if"] == ISSUES[workflow.name]
            continue
        assert job["timeout-minutes"], name
        if workflow.name == Path(ISSUE).name:
            # A job that may write issues runs no code of the repository or of other jobs.
            assert (*triggers(workflow), *writes) == ("workflow_call", "issues")
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


def planned(*options: str) -> dict[str, str]:
    """Returns the outputs of ci/matrix.py, which knows the tool without its packages."""
    program = [sys.executable, "-I", ROOT / "ci/matrix.py", *options]
    return dict(line.split("=", 1) for line in support.output(*program).splitlines())


def matrix(*options: str) -> list[dict[str, str]]:
    return json.loads(planned(*options)["wheels"])["include"]


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
    """A row whose second cell links a file quotes parts of the file in its third cell."""
    quotes = []
    for _, where, command, _ in table_of("## Each product is made from the real tree"):
        for file in re.findall(r"\[[^]]+\]\(([^)]+)\)", where):
            script = " ".join((ROOT / "ci" / file).read_text().replace("\\\n", " ").split())
            found = re.findall("`([^`]+)`", command)
            assert found, where
            quotes += [(file, quote, quote in script) for quote in found]
    assert len(quotes) > 20
    assert [quote for quote in quotes if not quote[2]] == []
