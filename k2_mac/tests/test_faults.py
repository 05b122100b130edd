"""k2_mac knows which versions of torch and macOS fail together."""

import runpy

import pytest

from k2_mac import faults


def links(torch_version, macos):
    return [fault.link.rsplit("/", 1)[1] for fault in faults.known_faults(torch_version, macos)]


@pytest.mark.parametrize(
    "torch_version, macos, expected",
    [
        ("2.13.0", "", []),
        ("2.13.0", "15.5", ["188045", "mps.py"]),
        ("2.13.0", "26.1", ["188045", "14380", "mps.py"]),
        ("2.13.0", "27.0", ["197796", "188045", "14380", "mps.py"]),
        ("2.12.1", "27.0", ["188045", "14380", "mps.py"]),
        ("2.14.0", "27.0", ["197805", "mps.py"]),
        ("2.14.1+cpu", "27.0", ["mps.py"]),
        ("2.14+cu128", "27.0", ["197805", "mps.py"]),
        ("2.15.0", "27.0", []),
    ],
)
def test_known_faults_of_torch_on_macos(torch_version, macos, expected):
    assert links(torch_version, macos) == expected


def test_the_import_warns_of_faults_that_end_a_program():
    with pytest.warns(UserWarning, match="torch 2.14.0 on macOS 27.0: .*197805") as warned:
        faults.warn_of_faults("2.14.0", "27.0")
    assert len(warned) == 1


def test_a_fault_may_have_no_end():
    assert faults.Fault("what", "link").concerns("2.13.0", "26.1")


def test_the_warning_names_the_file_that_imports_us(tmp_path):
    def imported():
        faults.warn_of_faults("2.14.0", "27.0")

    importer = tmp_path / "importer.py"
    importer.write_text("imported()\n")
    with pytest.warns(UserWarning) as warned:
        runpy.run_path(str(importer), {"imported": imported})
    assert warned[0].filename == str(importer)
