"""Launches kernels of a PTX file from PyTorch, by CUDA's driver API."""

import ctypes

import torch

WARMUPS, REPEATS = 5, 30


class PtxModule:
    """The kernels of a PTX file that the emulator's front end made.

    Args:
      path: the path of the file.
      Raises:
      RuntimeError: the driver refuses the PTX.
    """

    def __init__(self, path):
        self._cuda = ctypes.CDLL("libcuda.so.1")
        torch.zeros(1, device="cuda")  # makes the context
        self._module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self._module), path.read_bytes() + b"\0")

    def _call(self, name, *arguments):
        error = getattr(self._cuda, name)(*arguments)
        if error != 0:
            raise RuntimeError(f"{name}: CUDA error {error}")

    def launcher(self, kernel, groups, threads, tensors):
        """Returns a function that launches a kernel on torch's stream.

        Args:
          kernel: its name.
          groups, threads: the number of threadgroups, and of threads in each.
          tensors: the arguments, in the order of their indexes.
        """
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, kernel.encode())
        values = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        # Behind the buffers an entry takes the grid in threads.
        values += [ctypes.c_uint(n) for n in (groups * threads, 1, 1)]
        arguments = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

        def launch(keep=(tensors, values)):
            self._call(
                "cuLaunchKernel", function, groups, 1, 1, threads, 1, 1, 0, stream, arguments, None
            )

        return launch


def measure(function):
    """Returns the mean time of a call in microseconds."""
    for _ in range(WARMUPS):
        function()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(REPEATS):
        function()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1000 / REPEATS
