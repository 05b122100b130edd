"""The errors of cmake, ninja, compilers and linkers that `k2mps build` shows."""

import re

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.stand_in import answer, build, fails, trees


def test_an_error_of_cmake_is_shown(buildable):
    message = fails(buildable, 34, "--", "-DK2_BREAK_CONFIGURE=ON")
    assert "broken on purpose" in message and "configure.log" in message
    assert "compiler identification" not in message  # Only the log has what came before.


def test_a_cmake_that_names_no_error_is_shown_from_its_first_line(buildable):
    program = buildable.root / ".venv/bin/cmake"
    program.unlink()
    program.write_text("#!/bin/sh\necho killed; exit 3\n")
    program.chmod(0o755)
    assert "why: killed\n" in fails(buildable, 34)


def test_an_error_of_ninja_itself_is_shown(buildable):
    build(buildable)
    [tree] = trees(buildable)
    (buildable.root / "build" / tree / "build.ninja").write_text("not ninja\n")
    message = fails(buildable, 34)
    assert "ninja: error: build.ninja:1: " in message


def break_the_source(sandbox):
    """Builds, then puts a hundred warnings and an error into a source."""
    build(sandbox)
    warnings = "#warning of no interest\n" * 100
    text = warnings + "int Answer() { return wrong_name; }\n"
    support.write(sandbox.checkout, {"k2/csrc/answer.cc": text})


def test_an_error_of_the_compiler_is_shown_without_warnings(buildable):
    break_the_source(buildable)
    message = fails(buildable, 34)
    assert "answer.cc:101:" in message and "wrong_name" in message
    assert "FAILED: " in message and "build.log" in message
    assert "of no interest" not in message
    assert "-std=" not in message  # Only the log has the compiler's command.
    assert len(message.splitlines()) < 60


def test_with_keep_going_each_error_of_the_compiler_is_shown(buildable):
    break_the_source(buildable)
    support.edit(buildable.checkout / "k2/csrc/module.cc", "(&module)", "(other_name)")
    message = fails(buildable, 34, "--jobs", "1", "--keep-going")
    assert message.count("FAILED: ") == 2
    assert "wrong_name" in message and "other_name" in message
    assert fails(buildable, 34, "--jobs", "1").count("FAILED: ") == 1


def test_a_build_goes_on_after_an_error(buildable):
    break_the_source(buildable)
    fails(buildable, 34)
    support.write(buildable.checkout, {"k2/csrc/answer.cc": "int Answer() { return 5; }\n"})
    assert "2 steps" in build(buildable)
    assert answer(buildable) == "5"


def test_an_error_of_the_linker_is_shown(buildable):
    buildable.ok("apply")
    text = "int Missing();\nint Answer() { return Missing(); }\n"
    support.write(buildable.checkout, {"k2/csrc/answer.cc": text})
    message = fails(buildable, 34, "--", "-DCMAKE_MODULE_LINKER_FLAGS=-Wl,--no-undefined")
    assert "Missing()" in message


def add_step(sandbox, command):
    """Adds a step, which runs a command of the shell, to the build."""
    sandbox.ok("apply")
    step = f'add_custom_command(OUTPUT x.cc COMMAND sh -c "{command}" VERBATIM)\n'
    path = sandbox.checkout / "CMakeLists.txt"
    path.write_text(f"{path.read_text()}{step}target_sources(_k2 PRIVATE x.cc)\n")


def test_a_full_disk_in_a_step_is_reported(buildable):
    add_step(buildable, "cat /dev/zero > /dev/full")
    assert "No space left on device" in fails(buildable, 34)


def test_the_output_of_a_step_that_names_no_error_is_shown_from_its_first_line(buildable):
    add_step(buildable, "echo first; echo not FAILED: this; exit 3")
    message = fails(buildable, 34)
    assert re.search(r"^ *first\n *not FAILED: this$", message, re.MULTILINE), message
