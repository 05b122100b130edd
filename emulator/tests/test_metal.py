"""Foundation, dispatch and Metal, used rightly.

The checks themselves are Objective-C++: extension/metal.mm.
"""

import pytest

CHECKS = [
    "strings",
    "collections",
    "reference counts",
    "C++ exceptions in Objective-C++",
    "operating system version",
    "dispatch_once",
    "asynchronous work runs in order",
    "semaphore signalled by a completed handler",
    "buffers",
    "private buffer",
    "buffer over host memory",
    "results appear with the wait, not with the commit",
    "waiting for one queue does not publish another",
    "commands run in the order of commits",
    "polling the status makes progress",
    "CPU and commands write different bytes",
    "argument table",
    "shared events order two queues",
    "compile options",
    "compiled libraries are refused",
    "pipelines",
    "function constants",
    "libraries compile on any thread",
    "the stream's command buffer survives torch::mps::commit()",
    "torch's own stream API",
    "completed handler that enters torch's queue",
    "completed handler of the stream's command buffer",
]


def test_every_check_is_listed(extension):
    assert sorted(extension.metal_checks()) == sorted(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_metal(name, extension):
    extension.run_metal_check(name)


def test_compile_error_has_the_compilers_text(extension):
    assert extension.compile_error("kernel void f() {}") == ""
    text = extension.compile_error(
        "kernel void f(device float *x [[buffer(0)]]) {\n  x[0] = missing;\n}"
    )
    assert "program_source:2:10: error:" in text
    assert "missing" in text
