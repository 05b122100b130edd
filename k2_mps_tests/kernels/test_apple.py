"""Each function and each argument of k2's kernels is as Apple's compiler writes it."""

import shutil

import pytest
from k2mps.build.environment import Environment
from k2mps.core import errors, project

pytest.importorskip("mps_emulator", reason="the emulator's front end reads the kernels")

from mps_emulator.msl.air import metallib  # noqa: E402
from mps_emulator.msl.air.functions import in_air  # noqa: E402

from k2_mps_tests.apple import check, facts, wheels  # noqa: E402
from k2_mps_tests.kernels import sources  # noqa: E402


def test_each_function_has_the_type_that_apples_compiler_wrote():
    used = facts.used_functions()
    assert len(used) > 50
    wrong = {
        name: (type, facts.known(name))
        for name, type in used
        if facts.known(name) not in (None, type)
    }
    assert wrong == {}


def test_a_function_that_no_wheel_has_is_listed():
    missing = {name for name, _ in facts.used_functions() if facts.known(name) is None}
    assert missing == set(facts.load()["elsewhere"])


def test_each_argument_is_described_as_apples_compiler_describes_it():
    seen = set(map(tuple, facts.load()["arguments"]))
    used = facts.used_arguments()
    assert len(used) > 10
    assert {described: files for described, files in used.items() if described not in seen} == {}


def test_names_in_air():
    assert in_air("metal::precise::exp(float)") == ("air.exp.f32", "float (float)")
    assert in_air("metal::fast::exp(float __vector(4))") == (
        "air.fast_exp.v4f32",
        "<4 x float> (<4 x float>)",
    )
    assert in_air(
        "unsigned int metal::simd_shuffle<unsigned int, void>(unsigned int, unsigned short,"
        " unsigned long)"
    ) == ("air.simd_shuffle.u.i32", "i32 (i32, i16)")
    assert in_air("metal::isnan(float)") is None
    with pytest.raises(ValueError):
        in_air("something_else(float)")


@pytest.fixture(scope="module")
def libraries():
    try:
        return wheels.load(Environment(project.find()))
    except errors.K2mpsError as error:
        pytest.skip(f"{error.message}: {error.why}")


def test_the_wheels_say_the_same(libraries):
    found = facts.read(libraries, facts.used_functions())
    assert facts.text(found) == facts.text(facts.load())


def test_the_emulator_writes_the_container_of_torch(libraries):
    library = libraries["torch==2.14.1"]
    kernels = [(name, library.bitcode(name)) for name in library.kernels]
    assert metallib.write(kernels) == library.content


@pytest.mark.skipif(shutil.which("llvm-as-14") is None, reason="llvm-as-14 is not installed")
def test_a_metallib_is_checked(tmp_path, monkeypatch):
    path = tmp_path / "graph_index.metallib"
    sources.front_end(path.stem).build_metallib(str(path))
    content = path.read_bytes()
    monkeypatch.setattr(facts, "files", lambda: ["graph_index"])
    assert list(check.problems(b"before" + content + b"after")) == []
    assert list(check.problems(b"")) == ["graph_index is missing"]
    assert b"air.wg.barrier" in content
    [problem] = check.problems(content.replace(b"air.wg.barrier", b"air.wg.carrier"))
    assert problem == "graph_index calls air.wg.carrier, which facts.toml lacks"
    with monkeypatch.context() as patch:
        patch.setitem(facts.load()["attributes"], "air.wg.barrier", "nounwind")
        [problem] = check.problems(content)
    assert problem == "graph_index calls air.wg.barrier, whose attributes are not nounwind"
    known = {**facts.load()["torch==2.14.1"], **facts.load()["mlx-metal==0.32.4"]}
    monkeypatch.setattr(facts, "known", {**known, "air.wg.barrier": "void (i32)"}.get)
    [problem] = check.problems(content)
    assert problem == "graph_index calls air.wg.barrier as void (i32, i32), not void (i32)"
