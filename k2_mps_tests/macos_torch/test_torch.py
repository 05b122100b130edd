"""The program reads a release of torch for macOS, and compares it with known facts."""

import json
import sys
from collections.abc import Mapping

import pytest
from k2mps.build import toolchain
from k2mps.core import errors
from packaging.tags import parse_tag

from k2_mps_tests.macos_torch import __main__ as program
from k2_mps_tests.macos_torch import download, facts
from k2_mps_tests.macos_torch.library import Library, Step
from k2_mps_tests.tooling import macos, support, wheel_for_tests
from k2_mps_tests.tooling.test_environment import made, made_once  # noqa: F401

ROOT = support.TOOLS.parent
KNOWN = facts.load()
SYNCHRONIZE = "__ZNK2at3mps8MPSHooks17deviceSynchronizeEv"
DEVICE = "__ZN2at3mps9MPSDeviceC2Ev"
POOLS = "__ZN2at3mps10init_poolsEv"

# The source of a library that stands in for the system's libraries, which TORCH calls.
SYSTEM = """
int dispatch_sync(void *queue, void *block) { return 1; }
int objc_msgSend(void *object) { return 2; }
void assert_queue(void *queue) __asm__("_dispatch_assert_queue$V2");
void assert_queue(void *queue) {}
"""

# The source of a small library with what the program must find in torch's library: a wait, which
# enters the queue if NEW is defined; a constructor that enters the queue; a block that a function
# passes on; calls of methods; and constants.
TORCH = """
#define NAMED(name) __asm__(name) __attribute__((noinline))
int dispatch_sync(void *queue, void *block);
int wait(void *buffer) __asm__("_objc_msgSend$waitUntilCompleted");
int supports(void *device, int more, int family) __asm__("_objc_msgSend$supportsFamily:");
char *news(int size) __asm__("_objc_msgSend$new");
int construct(void) NAMED("__ZN2at3mps9MPSStreamC1Ev");
int stream(void *buffer) NAMED("__ZN2at3mps9MPSStream11synchronizeEv");
int all(void) NAMED("__ZN2at3mps6allEv");
int synchronize(void) NAMED("__ZNK2at3mps8MPSHooks17deviceSynchronizeEv");
int device(void *found) NAMED("__ZN2at3mps9MPSDeviceC2Ev");
int pool(void *memory, void *device, int flags) NAMED("__ZN2at3mps10BufferPoolC2Ei");
int pools(void *device) NAMED("__ZN2at3mps10init_poolsEv");
int kernel(int x) NAMED("__ZN2at3mps9_ctc_lossEi");
int contents(void *buffer) __asm__("_objc_msgSend$contents");
int encode(void *buffer) __asm__("_objc_msgSend$computeCommandEncoder");
void dispatch_assert_queue(void *queue) __asm__("_dispatch_assert_queue$V2");
int find(void *data) NAMED("__ZN2at3mps13HeapAllocator20MPSHeapAllocatorImpl13bufferForDataEPKv");
void *allocate(int size) NAMED("__ZN2at3mps12MPSAllocator8allocateEm");
int encoder(void) NAMED("__ZN2at3mps9MPSStream14commandEncoderEv");
static __attribute__((noinline)) int block(void) { return wait(0) + 1; }
const char told[] = "The MPS backend is supported on macOS 15.0+.";
volatile int kept;

int construct(void) { return dispatch_sync(0, 0) + 3; }
int stream(void *buffer) { construct(); return wait(buffer) + 4; }
int all(void) { return dispatch_sync(0, block) + 5; }
int device(void *found) { return supports(found, kept, 1007) + 6; }
int pool(void *memory, void *device, int flags) { kept = flags; return 7; }
int pools(void *device) {
  int *inlined = (int *)news(kept);
  inlined[2] = 11;
  return pool(news(kept), device, 10) + pool(news(kept), device, 8);
}
int kernel(int x) { return kept + x; }
#ifdef ADDRESSES
int find(void *data) { return contents(data) + 9; }
void *allocate(int size) { return (void *)(long)(find(news(size)) + 10); }
int encoder(void) { dispatch_assert_queue(0); return encode(0) + 11; }
#else
void *allocate(int size) { return news(size) + 10; }
int encoder(void) { return encode(0) + 11; }
#endif
#ifdef NEW
int synchronize(void) { return all() + 8; }
#else
int synchronize(void) { return stream(0) + 8; }
#endif
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two files of the small library, one like older releases of torch, one like newer releases."""
    macos.require_linker()
    folder = tmp_path_factory.mktemp("torch")
    system = macos.link(SYSTEM, folder / "system.dylib", name="/usr/lib/libSystem.B.dylib")
    old = macos.link(TORCH, folder / "old.dylib", system)
    new = macos.link(TORCH, folder / "new.dylib", system, "-DNEW", target="arm64-apple-macos15.0")
    return old.read_bytes(), new.read_bytes()


def release(content: bytes) -> facts.Release:
    names = ("cp310-cp310-macosx_14_0_arm64", "cp314-cp314t-macosx_14_0_arm64")
    tags = [tag for name in names for tag in parse_tag(name)]
    return facts.Release("9.1.0", Library(content, "small"), tags)


def test_what_a_function_calls(built):
    old, new = (Library(content, "small") for content in built)
    assert (old.macos, new.macos) == ("14.0", "15.0")
    assert old.reached(SYNCHRONIZE, facts._BACKEND) == {
        "__ZN2at3mps9MPSStream11synchronizeEv",
        "__ZN2at3mps9MPSStreamC1Ev",  # the constructor's own calls are left out
        "-waitUntilCompleted",
    }
    # The block waits.  The function that passes on the block does not wait.
    assert new.reached(SYNCHRONIZE, facts._BACKEND) == {"__ZN2at3mps6allEv", "_dispatch_sync"}
    assert Step("-supportsFamily:", 1007) in new.steps(DEVICE)
    assert list(new.steps("_no_such_function")) == []


FACTS = {
    "wait": {"kind": "calls", "of": SYNCHRONIZE, "what": "^-|^_dispatch"},
    "gone": {"kind": "calls", "of": "__ZN2at3mps4goneEv", "what": ""},
    "family": {"kind": "constants", "of": DEVICE, "what": "supportsFamily"},
    "pools": {"kind": "pools", "of": POOLS, "what": r"10BufferPoolC2|^\[x0, #8\]$"},
    "symbols": {"kind": "missing", "of": [SYNCHRONIZE, "__ZN2at3mps4goneEv"]},
    "operators": {"kind": "operators", "of": ["_ctc_loss", "ctc_loss", "cholesky"]},
    "told": {"kind": "texts", "of": r"supported on macOS ([\d.]+)\+"},
    "macos": {"kind": "macos"},
    "platforms": {"kind": "platforms"},
    "pythons": {"kind": "pythons"},
}


def table(values: Mapping[str, list[str]], queue: str = "inside") -> facts.Known:
    found = {
        name: {**fact, "known": {"9.0.0": values[name]}, "affects": ["x.mm"], "why": "so"}
        for name, fact in FACTS.items()
    }
    found["wait"]["queue"] = {"9.0.0": queue}
    return facts.Known(["9.0.0"], found)


def test_facts_of_a_library(built):
    known = table(dict.fromkeys(FACTS, []))
    old, new = (facts.read(release(content), known) for content in built)
    assert new == {
        "wait": ["_dispatch_sync"],
        "gone": ["the function is not there"],
        "family": ["1007"],
        "pools": ["shared", "shared", "private"],
        "symbols": ["__ZN2at3mps4goneEv"],
        "operators": ["_ctc_loss"],
        "told": ["15.0"],
        "macos": ["15.0"],
        "platforms": ["macosx_14_0_arm64"],
        "pythons": ["cp310", "cp314t"],
    }
    assert {name for name in new if new[name] != old[name]} == {"wait", "macos"}


def test_the_facts_find_addresses_as_data_pointers(tmp_path):
    """The facts differ from all known facts if an allocation returns [buffer contents]."""
    macos.require_linker()
    system = macos.link(SYSTEM, tmp_path / "system.dylib", name="/usr/lib/libSystem.B.dylib")
    names = ["a data pointer", "the encoder that stays open"]
    known = facts.Known(KNOWN.releases, {name: KNOWN.facts[name] for name in names})

    def changed(*options: str) -> dict[str, str]:
        content = macos.link(TORCH, tmp_path / "torch.dylib", system, *options).read_bytes()
        found = facts.compare(facts.read(release(content), known), known, "2.15.0")
        return {finding.fact: finding.gained for finding in found if finding.verdict != "as known"}

    assert changed() == {}
    assert changed("-DADDRESSES") == {
        "a data pointer": [
            "-contents",
            "__ZN2at3mps13HeapAllocator20MPSHeapAllocatorImpl13bufferForDataEPKv",
        ],
        "the encoder that stays open": ["_dispatch_assert_queue$V2"],
    }


def verdicts(found: list[facts.Finding]) -> dict[str, str]:
    return {finding.fact: finding.verdict for finding in found if finding.verdict != "as known"}


@pytest.fixture
def values(built):
    """The values of the facts in the old library, and in the new one."""
    empty = table(dict.fromkeys(FACTS, []))
    return [facts.read(release(content), empty) for content in built]


def test_a_library_that_is_as_known_has_no_findings(values):
    old, _ = values
    assert verdicts(facts.compare(old, table(old), "9.0.0")) == {}


def test_a_finding_lists_the_differences(values):
    old, new = values
    found = list(facts.compare(new, table(old), "9.0.0"))
    assert verdicts(found) == {"wait": "BREAKS", "macos": "differs"}
    assert found[0].breaks == found[0].gained == ["_dispatch_sync"]
    assert found[0].lost == ["-waitUntilCompleted"]
    assert found[0].affects == ["x.mm"]


def test_a_call_from_outside_of_the_queue_may_enter_it(values):
    old, new = values
    assert verdicts(facts.compare(new, table(old, "outside"), "9.0.0"))["wait"] == "differs"


def test_a_call_that_stops_k2_is_reported_even_if_it_is_known(values):
    _, new = values
    assert verdicts(facts.compare(new, table(new), "9.0.0")) == {"wait": "BREAKS"}


NEW_IN_2_15 = {
    "a wait for the GPU": "BREAKS",
    "a commit": "differs",
    "the command buffer": "differs",
    "an allocation": "differs",
    "the family of GPUs": "differs",
    "operators of the emulator's tests": "differs",
    "the least macOS of mps": "differs",
    "Pythons of the wheels": "differs",
}


def test_the_facts_of_2_14_alone_find_the_trap_of_2_15():
    """In 2.15, a wait enters the dispatch queue.

    With torch 2.14, k2 calls this wait from inside of the queue.  A wait that enters the queue
    hangs there.
    """
    found = list(facts.compare(KNOWN.values("2.15.0"), KNOWN, "2.14.1"))
    assert verdicts(found) == NEW_IN_2_15
    [trap] = [finding for finding in found if finding.breaks]
    assert (trap.fact, trap.breaks) == ("a wait for the GPU", ["_dispatch_sync"])
    assert trap.affects == ["patches/files/k2/csrc/mps/stream.mm", "patches/counters.patch"]


def test_the_table_names_known_releases_and_existing_files():
    assert KNOWN.before("2.14.7") == "2.14.1"
    with pytest.raises(errors.K2mpsError, match="nothing is known of torch 2.11.0 or older"):
        KNOWN.before("2.11.0")
    least = {version: toolchain.least_macos(version) for version in KNOWN.releases}
    assert least == {
        version: KNOWN.values(version)["the least macOS of mps"][0] for version in least
    }
    for name, fact in KNOWN.facts.items():
        assert {*fact["known"], *fact.get("queue", {})} <= set(KNOWN.releases), name
        for path in fact["affects"]:
            assert (ROOT / path).is_file(), f"{name}: {path}"


def wheel(made, tag, name=download._LIBRARY, content=b""):  # noqa: F811
    wheel_for_tests.make(made.wheels, "9.1.0", "torch", tag, {name: content})


@pytest.mark.parametrize("version", [None, "9.1.0"])
def test_a_release_is_downloaded_once(made, built, version):  # noqa: F811
    wheel(made, "cp312-cp312-macosx_15_0_arm64")
    wheel(made, "cp313-cp313-macosx_15_0_arm64", content=built[0])
    wheel(made, "cp313-cp313-manylinux_2_28_x86_64")
    found = download.fetch(made, version)
    assert found.version == "9.1.0"
    assert {str(tag) for tag in found.tags} == {
        "cp312-cp312-macosx_15_0_arm64",
        "cp313-cp313-macosx_15_0_arm64",
    }
    assert found.library.has(SYNCHRONIZE)
    for path in made.wheels.iterdir():
        path.unlink()
    assert download.fetch(made, "9.1.0").tags == found.tags


def test_a_wheel_without_the_library_is_an_error(made):  # noqa: F811
    wheel(made, "cp313-cp313-macosx_15_0_arm64", "torch/lib/other.dylib")
    with pytest.raises(errors.CheckFailedError, match="has no torch/lib/libtorch_cpu.dylib"):
        download.fetch(made, "9.1.0")
    with pytest.raises(errors.CheckFailedError, match="small is not Mach-O for arm64"):
        Library(b"\x7fELF" + bytes(100), "small")


def test_the_real_wheel_of_2_15():
    """The program reads the table's facts from the wheel, and finds the fact that breaks k2."""
    words = ("2.15.0", "--known", "2.14.1", "--json")
    result = support.ran(sys.executable, "-m", program.__package__, *words, cwd=ROOT)
    if result.returncode == program.UNREAD:
        pytest.skip(f"pip's index cannot be reached: {result.stdout.strip()}")
    assert result.returncode == program.FINDINGS, result.stderr
    printed = json.loads(result.stdout)
    assert (printed["version"], printed["known"]) == ("2.15.0", "2.14.1")
    expected = facts.compare(KNOWN.values("2.15.0"), KNOWN, "2.14.1")
    assert printed["facts"] == [
        {**finding._asdict(), "verdict": finding.verdict} for finding in expected
    ]


@pytest.mark.parametrize("words", [["abc"], ["2.13.0", "--known", "2.x"]])
def test_an_argument_that_is_not_a_version_is_refused(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["torch", *words])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert f"{words[-1]} is not a version" in capsys.readouterr().err
