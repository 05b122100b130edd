"""k2 posts the right signposts and labels for Instruments.

The emulated device records signposts and labels.
"""

import sys
import threading

import _k2
import k2
import pytest
import torch

from k2_mps_tests.parity import calls
from k2_mps_tests.parity.helpers import python

if sys.platform == "darwin":
    pytest.skip("on a Mac, only Instruments records signposts", allow_module_level=True)
import mps_emulator  # noqa: E402


def _record(function):
    """Returns the trace of a call, including its work on the GPU."""
    torch.mps.synchronize()
    with mps_emulator.trace() as trace:
        function()
        torch.mps.synchronize()
    return trace


def _of(trace, name):
    return [i for i in trace.intervals() if i.name == name]


def _within(inner, outer):
    return inner.thread == outer.thread and outer.begin <= inner.begin <= inner.end <= outer.end


# Calls that run different kernels of k2 in Metal.
CALLS = [
    "k2.mutual_information_recursion(px, py)",
    "k2.intersect_dense(graph, dense, output_beam=10)",
    "fsas.get_tot_scores(use_double_scores=False, log_semiring=True).sum().backward()",
]


@pytest.fixture(scope="module", params=CALLS)
def trace_of_kernels(request):
    """Returns the trace of one of CALLS, with K2_MPS_FORCE=metal."""
    variables = calls.variables()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("K2_MPS_FORCE", "metal")
        trace = _record(lambda: calls.result(request.param, variables))
    assert trace.dispatches
    return trace


def test_an_encoder_has_the_label_of_its_kernel(trace_of_kernels):
    for dispatch in trace_of_kernels.dispatches:
        assert dispatch.label == f"k2 {dispatch.kernel}"


def test_a_pipeline_has_the_label_of_its_kernel(trace_of_kernels):
    for dispatch in trace_of_kernels.dispatches:
        assert dispatch.pipeline == f"k2 {dispatch.kernel}"


def test_a_dispatch_has_a_signpost_with_the_name_of_its_kernel(trace_of_kernels):
    encoded = _of(trace_of_kernels, "dispatch")
    kernels = [dispatch.kernel for dispatch in trace_of_kernels.dispatches]
    assert [interval.message for interval in encoded] == kernels


def test_a_signpost_of_a_dispatch_is_a_point_of_interest_of_k2(trace_of_kernels):
    for interval in _of(trace_of_kernels, "dispatch"):
        assert interval.subsystem == "org.k2-fsa.k2"
        assert interval.category == "PointsOfInterest"


def test_a_signpost_of_a_dispatch_begins_before_the_kernel_runs(trace_of_kernels):
    encoded = _of(trace_of_kernels, "dispatch")
    for interval, dispatch in zip(encoded, trace_of_kernels.dispatches):
        assert interval.begin <= dispatch.begin


def parts_of_intersection():
    """Returns the interval of the function k2::IntersectDenseMps, and the intervals within it."""
    variables = calls.variables()
    trace = _record(lambda: calls.result(CALLS[1], variables))
    (whole,) = [i for i in _of(trace, "function") if i.message == "k2::IntersectDenseMps"]
    return whole, [i for i in trace.intervals() if i is not whole and _within(i, whole)]


def test_a_function_holds_what_it_calls(metal):
    whole, parts = parts_of_intersection()
    assert whole.category == "DynamicTracing"
    assert {i.name for i in parts} == {"function", "dispatch", "wait"}


def test_two_intervals_of_a_thread_are_nested_or_disjoint(metal):
    _, parts = parts_of_intersection()
    assert parts
    for part in parts:
        for other in parts:
            assert (
                _within(part, other)
                or _within(other, part)
                or part.end <= other.begin
                or other.end <= part.begin
            )


def test_messages_are_names_without_types():
    loose = calls.variables()["loose"]
    trace = _record(lambda: k2.connect(k2.arc_sort(loose)))
    found = {i.message for i in _of(trace, "function")}
    assert {"k2::Connect", "k2::ArcSort"} <= found
    for message in found:
        assert message.startswith("k2::") and "(" not in message, message


def test_there_is_one_wait_for_each_gate():
    loose = calls.variables()["loose"]
    with k2.mps.counters() as counted:
        trace = _record(lambda: k2.connect(loose))
    waits = _of(trace, "wait")
    assert len(waits) == counted.gates > 0
    assert {(i.category, i.message) for i in waits} == {("DynamicTracing", "")}


def test_tracing_may_be_always_on():
    """K2_MPS_SIGNPOSTS=1 is for tools that do not turn on dynamic tracing."""
    code = (
        "import k2, mps_emulator\n"
        "with mps_emulator.trace() as trace:\n"
        '    k2.connect(k2.Fsa.from_str("0 1 -1 0.5\\n1").to("mps"))\n'
        "print({i.category for i in trace.intervals()})\n"
    )
    for value, category in (("1", "Tracing"), ("", "DynamicTracing")):
        result = python("-c", code, K2_MPS_SIGNPOSTS=value)
        assert result.stdout == f"{{'{category}'}}\n", result.stderr


def test_an_exception_ends_what_has_begun():
    cyclic = k2.Fsa.from_str("0 0 1 0.1\n0 1 -1 0.2\n1").to("mps")
    fsas = k2.create_fsa_vec([cyclic])

    def fail():
        with pytest.raises(RuntimeError):
            _k2.get_state_batches(fsas.arcs, transpose=True)

    assert _of(_record(fail), "function")


def test_threads_have_intervals_of_their_own():
    def loss():
        px = torch.randn(3, 5, 9, device="mps")
        py = torch.randn(3, 6, 8, device="mps")
        for _ in range(20):
            k2.mutual_information_recursion(px, py)

    def all_of_them():
        threads = [threading.Thread(target=loss) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    trace = _record(all_of_them)
    calls = [i for i in _of(trace, "function") if i.message == "k2::MutualInformationMps"]
    dispatches = _of(trace, "dispatch")
    assert len(calls) == len(dispatches) == 4 * 20
    assert len({call.thread for call in calls}) == 4
    for call in calls:
        assert sum(_within(i, call) for i in dispatches) == 1
