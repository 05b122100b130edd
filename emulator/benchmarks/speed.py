"""Times of the emulated device, in microseconds unless a line names another unit.

    python benchmarks/speed.py

Each figure is the best of several rounds.  The figures give the cost of tests on
the emulator, and say nothing about a Mac.
"""

import gc
import os
import subprocess
import sys
import time

import mps_emulator
import torch


def best(function, repetitions, rounds=5):
    result = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(repetitions):
            function()
        result = min(result, time.perf_counter() - start)
    return result / repetitions * 1e6


def compare(name, make, repetitions=5000):
    """Times the function that make(device) returns, on both devices."""
    cpu = best(make("cpu"), repetitions)
    mps = best(make("mps"), repetitions)
    torch.mps.synchronize()
    print(f"{name:34s} cpu {cpu:9.2f}   mps {mps:9.2f}   over {mps - cpu:8.2f}")


def show(name, microseconds):
    print(f"{name:34s} {microseconds:9.2f}")


def small_operators():
    def on(device, function):
        x = torch.ones(8, device=device)
        return lambda: function(x)

    for name, function in (
        ("x + 1", lambda x: x + 1),
        ("x.mul_(1)", lambda x: x.mul_(1)),
        ("x @ y", lambda x: torch.dot(x, x)),
        ("x.sum()", lambda x: x.sum()),
        ("torch.cat([x, x])", lambda x: torch.cat([x, x])),
        ("x[x > 0]", lambda x: x[x > 0]),
        ("x[1:]", lambda x: x[1:]),
        ("x.clone()", lambda x: x.clone()),
        ("x[0].item()", lambda x: x[0].item()),
        ("torch.empty(8)", lambda x: torch.empty(8, device=x.device)),
    ):
        compare(name, lambda device: on(device, function))


def training_step():
    def step(device):
        torch.manual_seed(0)
        network = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(8)]).to(device)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        x = torch.ones(16, 32, device=device)

        def run():
            optimizer.zero_grad()
            network(x).square().sum().backward()
            optimizer.step()

        return run

    compare("training step, 8 layers", step, 200)


def large_buffers():
    elements = 25 << 20  # 100 MiB
    compare(
        "100 MiB: x.add_(1)",
        lambda device: (lambda x: lambda: x.add_(1))(torch.ones(elements, device=device)),
        3,
    )
    x = torch.ones(elements, device="mps")
    torch.mps.synchronize()
    allocator_view = x.cpu()  # warm pages, as above
    del allocator_view
    show("100 MiB: add_ and wait", best(lambda: _add_and_wait(x), 3))
    print("    with a host copy:")
    _expose(x)
    torch.mps.synchronize()
    show("100 MiB: x.add_(1)", best(lambda: x.add_(1), 3))
    show("100 MiB: x[0] += 1", best(lambda: x[:1].add_(1), 3))
    show("100 MiB: add_ and wait", best(lambda: _add_and_wait(x), 3))


def _add_and_wait(x):
    x.add_(1)
    torch.mps.synchronize()


def _expose(x):
    """Asks for the buffer's contents, as an extension does."""
    import ctypes

    objc = ctypes.CDLL(mps_emulator.library_path())
    runtime = ctypes.CDLL("libobjc.so.4")
    runtime.sel_registerName.restype = ctypes.c_void_p
    objc.objc_msg_lookup.restype = ctypes.c_void_p
    receiver = ctypes.c_void_p(x.untyped_storage().data_ptr())
    selector = ctypes.c_void_p(runtime.sel_registerName(b"contents"))
    method = objc.objc_msg_lookup(receiver, selector)
    call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return call(method)(receiver, selector)


def in_new_processes(code, **variables):
    """The least number that three processes print when they run the code."""
    printed = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        printed.append(float(done.stdout))
    return min(printed)


def loading():
    """The time that loading the emulator adds to `import torch`."""
    code = (
        "import time, torch; start = time.perf_counter(); import mps_emulator;"
        "mps_emulator.load(); print(time.perf_counter() - start)"
    )
    seconds = in_new_processes(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    show("loading the emulator", seconds * 1e6)


SHADER = (
    "#include <metal_stdlib>\n"
    "kernel void add(device float *x, uint i [[thread_position_in_grid]])"
    " { x[i] += 1; }"
)


def kernels():
    """The time of loading a library from the cache, and of a launch."""
    code = (
        "import time, torch; start = time.perf_counter();"
        f"torch.mps.compile_shader({SHADER!r}); print(time.perf_counter() - start)"
    )
    show("cached kernel library", in_new_processes(code) * 1e6)
    add = torch.mps.compile_shader(SHADER).add
    x = torch.zeros(8, device="mps")

    def launch_and_wait():
        add(x)
        torch.mps.synchronize()

    show("launch of 8 threads, and wait", best(launch_and_wait, 2000))


def many_tensors():
    """The time of making a tensor while 200,000 are alive, for each."""
    gc.collect()
    count = 200_000
    start = time.perf_counter()
    tensors = [torch.empty(4, device="mps") for _ in range(count)]
    show("one of 200,000 live tensors, empty(4)", (time.perf_counter() - start) / count * 1e6)
    start = time.perf_counter()
    del tensors
    show("    and freeing it", (time.perf_counter() - start) / count * 1e6)


def main():
    print("emulated;", torch.__version__)
    loading()
    kernels()
    many_tensors()
    show("idle torch.mps.synchronize()", best(torch.mps.synchronize, 100_000))
    small_operators()
    training_step()
    large_buffers()


if __name__ == "__main__":
    main()
