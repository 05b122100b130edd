"""k2.mps.explain() reports where k2 ran operations; k2_mac.calibrate measures their costs."""

import json
import os
import platform
import re
import sys

import _k2
import k2
import pytest
import torch
from k2.mps import placement

from k2_mac import calibrate
from k2_mps_tests.parity.helpers import python, random_fsa_vec

OPERATIONS = {"intersect_dense", "ctc_loss", "get_tot_scores", "intersect_dense_pruned"}


@pytest.fixture
def costs():
    """Restores k2's costs of the host and of Metal after a test that sets them."""
    before = {p.operation: p.costs for p in _k2.mps_placements()}
    yield before
    for name, each in before.items():
        _k2.mps_set_costs(name, each.host, each.step, each.call)


def _of(operation):
    return next(p for p in _k2.mps_placements() if p.operation == operation)


def _line(operation):
    return next(x for x in k2.mps.explain().splitlines() if x.startswith(operation))


def _scores(fsas):
    fsas._invalidate_cache_()
    return fsas.get_tot_scores(True, True)


def test_explain_names_the_place_of_the_last_call(costs, monkeypatch):
    fsas = random_fsa_vec(2).to("mps")
    monkeypatch.delenv("K2_MPS_FORCE", raising=False)
    for host, who in ((0.0, "the host"), (1e9, "Metal")):
        _k2.mps_set_costs("get_tot_scores", host, 0.0, 1.0)
        _scores(fsas)
        assert _line("get_tot_scores").startswith(f"get_tot_scores: {who}; estimated")
    last = _of("get_tot_scores")
    assert last.last_work == fsas.num_arcs
    assert last.last_steps == fsas._get_state_batches().dim0
    assert f"for {fsas.num_arcs} arcs" in _line("get_tot_scores")


@pytest.mark.parametrize("force, who", [("host", "the host"), ("metal", "Metal")])
def test_explain_says_what_was_forced(force, who, monkeypatch):
    monkeypatch.setenv("K2_MPS_FORCE", force)
    _scores(random_fsa_vec(2).to("mps"))
    assert f"{who}, as K2_MPS_FORCE says" in _line("get_tot_scores")


def test_costs_decide_between_host_and_metal(costs, monkeypatch):
    monkeypatch.delenv("K2_MPS_FORCE", raising=False)
    fsas = random_fsa_vec(2).to("mps")
    batches = fsas._get_state_batches().dim0
    for host in (0.9, 1.1):
        # Metal's estimate is fsas.num_arcs.  The host's estimate is host * fsas.num_arcs.
        _k2.mps_set_costs("get_tot_scores", host, (fsas.num_arcs - 10) / batches, 10.0)
        _scores(fsas)
        assert _of("get_tot_scores").last_is_metal == (host > 1)
    with pytest.raises(RuntimeError, match="no_such"):
        _k2.mps_set_costs("no_such", 1, 1, 1)


def _python(path, *arguments):
    return python(*arguments, K2_MPS_COSTS=str(path))


def _calibrate(path, steady):
    """Runs k2_mac.calibrate in a new process.

    steady: by how much the rounds of a measurement may differ; -1 refuses every measurement.
    """
    program = "import sys; from k2_mac import calibrate; "
    program += f"calibrate.STEADY = {steady}; sys.exit(calibrate.main())"
    return _python(path, "-c", program)


def test_calibrate_keeps_nothing_that_is_not_steady(tmp_path):
    path = tmp_path / "costs.json"
    found = _calibrate(path, steady=-1)
    assert found.returncode == 1
    assert "The times are not steady" in found.stderr
    assert not path.exists()


def test_a_dry_run_of_calibrate_keeps_nothing(tmp_path):
    path = tmp_path / "costs.json"
    found = _python(path, "-m", "k2_mac.calibrate", "--dry-run")
    assert found.returncode == 0, found.stderr
    assert re.search(r"the rounds differ by \d+%", found.stdout)
    emulated = "these are no times of a GPU" in found.stdout
    assert emulated == (sys.platform != "darwin")
    assert not path.exists()


def test_a_busy_round_of_calibrate_changes_no_cost(monkeypatch):
    """Another program slows the machine down in all rounds but the second one."""
    times = []

    def time(call, slow):
        number_of_round = len(times) // (3 * len(OPERATIONS))
        times.append(1e6 * (slow if number_of_round != 1 else 1))
        return times[-1]

    monkeypatch.setattr(calibrate, "_time", lambda call: time(call, slow=1))
    quiet, spread = calibrate.measure()
    assert set(spread.values()) == {0.0}
    times.clear()
    monkeypatch.setattr(calibrate, "_time", lambda call: time(call, slow=3))
    busy, spread = calibrate.measure()
    assert busy == quiet
    assert set(spread.values()) == {2.0}


@pytest.mark.parametrize("seconds, calls", [(1e-3, 20), (0.03, 4), (0.06, 3), (0.3, 2), (0.6, 1)])
def test_a_round_ends_after_some_calls_or_some_time(monkeypatch, seconds, calls):
    now, made = [0], []
    monkeypatch.setattr(calibrate.time, "perf_counter_ns", lambda: now[0])

    def call():
        made.append(1)
        # The last call of a round is the fastest.
        now[0] += int(1e9 * seconds) - (len(made) == calls)

    assert calibrate._time(call) == int(1e9 * seconds) - 1
    assert len(made) == calls


@pytest.mark.parametrize(
    "times, costs",
    [
        # {"host": the time for one of 10 units of work, "step": the time for one of 4 more steps}
        ((50.0, 7.0, 15.0), {"host": 5.0, "step": 2.0, "call": 5.0}),
        # Without noise, neither a step nor a call takes a negative time.
        ((50.0, 7.0, 6.0), {"host": 5.0, "step": 0.0, "call": 7.0}),
        ((50.0, 7.0, 407.0), {"host": 5.0, "step": 100.0, "call": 0.0}),
    ],
)
def test_the_costs_of_an_operation(monkeypatch, times, costs):
    """The times are those of the host, of Metal's short problem and of its long problem."""
    problems = iter([{"x": "short"}, {"x": "long"}])
    steps = {"short": 1.0, "long": 5.0}
    monkeypatch.setattr(calibrate, "_problems", lambda *frames: next(problems))
    monkeypatch.setattr(
        calibrate, "_prepared", lambda name, call: calibrate.Measured([], 10.0, steps[call])
    )
    count = iter(range(100))

    def time(call):
        number = next(count)
        # In the last round, Metal's long problem takes twice its time.
        return times[number % 3] * (2 if number == 3 * calibrate.ROUNDS - 1 else 1)

    monkeypatch.setattr(calibrate, "_time", time)
    assert calibrate.measure() == ({"x": costs}, {"x": 1.0})


@pytest.mark.parametrize("before", [None, "host"])
def test_the_variable_and_the_threads_are_as_before(monkeypatch, before):
    monkeypatch.delenv("K2_MPS_FORCE", raising=False)
    if before:
        monkeypatch.setenv("K2_MPS_FORCE", before)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyError), calibrate._forced("metal"):
            assert os.environ["K2_MPS_FORCE"] == "metal" and torch.get_num_threads() == 1
            raise KeyError
        assert os.environ.get("K2_MPS_FORCE") == before and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def _main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["calibrate", *arguments])
    return calibrate.main()


def test_a_dry_run_that_is_not_steady_is_no_failure(monkeypatch, capsys):
    monkeypatch.setattr(calibrate, "measure", lambda: ({}, {"ctc_loss": 0.2}))
    assert _main(monkeypatch, "--dry-run") == 0
    assert "The times are not steady" in capsys.readouterr().err
    monkeypatch.setattr(calibrate, "measure", lambda: ({}, {"ctc_loss": calibrate.STEADY}))
    assert _main(monkeypatch, "--dry-run") == 0
    assert not capsys.readouterr().err


def test_without_a_device_calibrate_fails(monkeypatch, capsys):
    monkeypatch.setattr(k2.mps, "unavailable_reason", lambda: "there is no GPU")
    assert _main(monkeypatch, "--dry-run") == 1
    assert capsys.readouterr().err == "there is no GPU\n"


def test_calibrate_saves_the_costs_of_this_machine(tmp_path):
    path = tmp_path / "caches" / "costs.json"
    found = _calibrate(path, steady=1e9)
    assert found.returncode == 0, found.stderr
    assert torch.backends.mps.get_name() in found.stdout and str(path) in found.stdout
    saved = json.loads(path.read_text())[platform.node()]
    assert set(saved["costs"]) == OPERATIONS
    for each in saved["costs"].values():
        assert each["host"] > 0 and each["step"] >= 0 and each["call"] >= 0

    program = "import k2, _k2; print(k2.mps.explain()); "
    program += "print({p.operation: p.costs.host for p in _k2.mps_placements()})"
    found = _python(path, "-c", program)
    assert "measurements of this machine" in found.stdout
    assert str({name: each["host"] for name, each in saved["costs"].items()}) in found.stdout

    # k2 ignores the settings of another machine that shares the home folder.
    path.write_text(json.dumps({"another": saved}))
    assert "not from this machine" in _python(path, "-c", program).stdout

    path.write_text(json.dumps({"another": saved, platform.node(): saved}))
    assert _python(path, "-m", "k2_mac.calibrate", "--forget").returncode == 0
    assert set(json.loads(path.read_text())) == {"another"}


def test_a_damaged_file_is_a_warning(tmp_path):
    path = tmp_path / "costs.json"
    empty_costs = json.dumps({platform.node(): {"costs": {"ctc_loss": {}}}})
    for text in ("", "[", empty_costs):
        path.write_text(text)
        found = _python(path, "-c", "import k2; print(k2.__name__)")
        assert found.stdout.strip() == "k2"
        assert f"k2 cannot read the costs in {path}" in found.stderr


def test_a_machine_that_was_not_measured_is_no_warning(tmp_path):
    found = _python(tmp_path / "missing.json", "-W", "error", "-c", "import k2")
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("text", ["", "[", "[]", "\xff"])
def test_calibrate_replaces_a_damaged_file(tmp_path, monkeypatch, text):
    path = tmp_path / "costs.json"
    path.write_bytes(text.encode("latin-1"))
    monkeypatch.setenv("K2_MPS_COSTS", str(path))
    calibrate._save({"ctc_loss": {"host": 1.0}})
    assert json.loads(path.read_text())[platform.node()]["costs"] == {"ctc_loss": {"host": 1.0}}


def test_a_dry_run_forgets_nothing(monkeypatch, capsys):
    monkeypatch.setattr(calibrate, "_save", lambda costs: pytest.fail("the file changed"))
    monkeypatch.setattr(sys, "argv", ["calibrate", "--forget", "--dry-run"])
    with pytest.raises(SystemExit) as ended:
        calibrate.main()
    assert ended.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_without_a_file_for_costs_calibrate_fails():
    found = _python("", "-m", "k2_mac.calibrate")
    assert found.returncode == 1
    assert "K2_MPS_COSTS is empty" in found.stderr


def test_a_dry_run_needs_no_file_for_costs(monkeypatch):
    monkeypatch.setenv("K2_MPS_COSTS", "")
    monkeypatch.setattr(calibrate, "_time", lambda call: 1e6)
    monkeypatch.setattr(sys, "argv", ["calibrate", "--dry-run"])
    assert calibrate.main() == 0


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has another folder for caches")
def test_the_costs_are_in_the_users_folder_for_caches(monkeypatch, tmp_path):
    monkeypatch.delenv("K2_MPS_COSTS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert placement.path_of_costs() == tmp_path / "caches/k2/mps-costs.json"
    # The specification of XDG says that an empty variable names no folder.
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert placement.path_of_costs() == tmp_path / "home/.cache/k2/mps-costs.json"
