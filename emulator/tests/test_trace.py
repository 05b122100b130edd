"""Tests mps_emulator.trace(), which records signposts and dispatches."""

import functools
import threading

import kernels
import mps_emulator
import pytest
import torch

POINTS = "PointsOfInterest"
DYNAMIC = "DynamicTracing"


def test_an_interval_has_the_programs_arguments(extension):
    with mps_emulator.trace() as trace:
        id_ = extension.begin_interval(POINTS, 'a "message"\n\\')
        extension.end_interval(POINTS, id_)
    begin, end = trace.signposts
    assert (begin.kind, end.kind) == ("begin", "end")
    assert begin.id == end.id == id_
    (interval,) = trace.intervals()
    assert interval == mps_emulator.Interval(
        "org.example",
        POINTS,
        "interval",
        'a "message"\n\\',
        threading.get_native_id(),
        begin.time,
        end.time,
    )
    assert begin.time <= end.time


def test_intervals_end_in_any_order(extension):
    with mps_emulator.trace() as trace:
        ids = [extension.begin_interval(POINTS, name) for name in "abc"]
        for id_ in (ids[1], ids[0], ids[2]):
            extension.end_interval(POINTS, id_)
    a, b, c = trace.intervals()
    assert [i.message for i in (a, b, c)] == ["a", "b", "c"]
    assert a.begin <= b.begin <= b.end <= a.end <= c.end


def test_messages(extension):
    with mps_emulator.trace() as trace:
        extension.post_messages("text")
    assert [(post.kind, post.name, post.message) for post in trace.signposts] == [
        ("begin", "plain", ""),
        # As on a Mac, a string is private if the format does not mark it as public.
        ("begin", "strings", "<private> text and more %"),
    ]


def test_dynamic_tracing_is_on_only_during_a_trace(extension):
    assert extension.signposts_enabled(POINTS)
    assert not extension.signposts_enabled(DYNAMIC)
    id_ = extension.begin_interval(DYNAMIC, "before")
    with mps_emulator.trace() as trace:
        assert extension.signposts_enabled(DYNAMIC)
        with pytest.raises(ValueError, match="the interval has not begun"):
            with mps_emulator.trace() as inner:
                extension.end_interval(DYNAMIC, id_)
            inner.intervals()
    assert not extension.signposts_enabled(DYNAMIC)
    assert len(trace.signposts) == 1


def test_an_interval_without_an_end_or_with_two_begins_is_refused(extension):
    with mps_emulator.trace() as trace:
        extension.begin_interval(POINTS, "open")
    with pytest.raises(ValueError, match="the interval has no end"):
        trace.intervals()
    trace.signposts *= 2
    with pytest.raises(ValueError, match="the interval begins twice"):
        trace.intervals()


def test_traces_may_be_nested(extension):
    def post(message):
        extension.end_interval(POINTS, extension.begin_interval(POINTS, message))

    with mps_emulator.trace() as outer:
        post("one")
        with mps_emulator.trace() as inner:
            post("two")
        post("three")
    post("four")
    assert [i.message for i in inner.intervals()] == ["two"]
    assert [i.message for i in outer.intervals()] == ["one", "two", "three"]
    with mps_emulator.trace() as after:
        pass
    assert after == mps_emulator.Trace()


def test_a_trace_has_the_signposts_of_all_threads(extension, in_threads):
    def run(number):
        for i in range(200):
            id_ = extension.begin_interval(DYNAMIC, f"{number}.{i}")
            extension.end_interval(DYNAMIC, id_)

    with mps_emulator.trace() as trace:
        in_threads([functools.partial(run, number) for number in range(4)])
    intervals = trace.intervals()
    assert {i.message for i in intervals} == {f"{n}.{i}" for n in range(4) for i in range(200)}
    by_thread = {}
    for interval in intervals:
        number = interval.message.split(".")[0]
        assert by_thread.setdefault(number, interval.thread) == interval.thread
    assert len(set(by_thread.values())) == 4


def test_dispatches_have_their_labels(extension):
    with mps_emulator.trace() as trace:
        extension.run_metal_check("commands run in the order of commits")
    assert trace.dispatches
    for dispatch in trace.dispatches:
        assert dispatch.label == "scale four"
        assert dispatch.kernel == "scale"
        assert dispatch.pipeline == "pipeline of scale"
        assert dispatch.begin <= dispatch.end


def test_a_dispatch_is_traced_when_it_runs():
    x = torch.ones(4, device="mps")
    y = torch.ones(4, device="mps")
    torch.mps.synchronize()
    with mps_emulator.trace() as encoded:
        kernels.axpy(x, y, 2.0)
    with mps_emulator.trace() as run:
        torch.mps.synchronize()
    assert not encoded.dispatches
    assert [(d.kernel, d.during) for d in run.dispatches] == [("axpy", "")]
    with mps_emulator.trace() as run:
        kernels.axpy(x, y, 2.0)
        y.sum()
        kernels.axpy(x, y, 2.0)
        y.cpu()
        kernels.axpy(x, y, 2.0)
        torch.mps.synchronize()
    assert [d.during for d in run.dispatches] == ["aten::sum", "aten::copy_", ""]
