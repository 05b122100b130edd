"""Calls CUDA's driver API: memory and kernels of an NVIDIA GPU.

This file is copied into folders that run on other machines.  So it may import only NumPy and
the standard library, and it needs NVIDIA's driver.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

# Constants of the driver API.
_JIT_THREADS_PER_BLOCK = 1
_JIT_ERROR_LOG_BUFFER = 5
_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6
_MOST_THREADS = 0


class NoGpu(Exception):
    """The machine has no GPU that CUDA can use; the text gives the reason."""


class CudaError(Exception):
    """A call of the driver failed."""


class Driver:
    """The first GPU of this machine.

    Attributes:
      name: the name of the GPU.
    Raises:
      NoGpu: the machine has no usable GPU.
    """

    def __init__(self):
        self._modules = {}  # {(ptx, threads): the module that load(ptx, threads) returned}
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoGpu(f"NVIDIA's driver is not installed ({error})")
        try:
            self.call("cuInit", 0)
            device = self.get("cuDeviceGet", 0, kind=ctypes.c_int)
        except CudaError as error:
            raise NoGpu(str(error))
        name = ctypes.create_string_buffer(100)
        self.call("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode()
        self.call("cuCtxSetCurrent", self.get("cuDevicePrimaryCtxRetain", device))

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver.

        Passes each int as 64 bits.  A function whose parameter is shorter ignores the upper bits.

        Raises:
          CudaError: the function failed.
        """
        error = getattr(self._cuda, name)(
            *(ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments)
        )
        if error:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(error, ctypes.byref(text))
            raise CudaError("{}: {}".format(name, (text.value or b"error %d" % error).decode()))

    def get(self, name: str, *arguments: Any, kind: type = ctypes.c_void_p) -> Any:
        """Calls a function that stores a result at the address in its first argument.

        Args:
          arguments: the arguments after this address.
          kind: the ctypes type of the result.
        Returns:
          The result, an object of this type.
        Raises:
          CudaError: the function failed.
        """
        result = kind()
        self.call(name, ctypes.byref(result), *arguments)
        return result

    def load(self, ptx: bytes, threads: int | None = None) -> ctypes.c_void_p:
        """Compiles PTX to a module.

        Args:
          threads: the most threads that a block of the module's kernels will have.  The driver then
            limits the registers of a thread.  If `threads` is None, the driver sets no limit.
        Raises:
          CudaError: the driver refuses the PTX.
        """
        log = ctypes.create_string_buffer(8192)
        options = [
            (_JIT_ERROR_LOG_BUFFER, ctypes.addressof(log)),
            (_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, len(log)),
        ]
        if threads is not None:
            options.append((_JIT_THREADS_PER_BLOCK, threads))
        names = (ctypes.c_int * len(options))(*[name for name, _ in options])
        # For an option whose value is a number, the driver reads the pointer itself as the number.
        values = (ctypes.c_void_p * len(options))(*[v for _, v in options])
        try:
            return self.get("cuModuleLoadDataEx", ptx + b"\0", len(options), names, values)
        except CudaError as error:
            raise CudaError(f"{error}\n{log.value.decode()}")

    def kernel(self, ptx: bytes, entry: str, threads: int) -> ctypes.c_void_p:
        """Returns the kernel `entry` of PTX, for blocks of up to `threads` threads.

        If the kernel uses too many registers for so many threads, the driver compiles the PTX
        again with a limit.
        """
        function = self._function(ptx, entry, None)
        most = self.get("cuFuncGetAttribute", _MOST_THREADS, function, kind=ctypes.c_int).value
        return function if threads <= most else self._function(ptx, entry, threads)

    def _function(self, ptx, entry, threads):
        module = self._modules.get((ptx, threads))
        if module is None:
            module = self._modules[ptx, threads] = self.load(ptx, threads)
        return self.get("cuModuleGetFunction", module, entry.encode())

    def allocate(self, size: int) -> int:
        """Allocates `size` bytes of the GPU's memory; returns their address."""
        return self.get("cuMemAlloc_v2", max(size, 1), kind=ctypes.c_uint64).value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", address)

    def write(self, address: int, offset: int, array: np.ndarray) -> None:
        """Copies an array to the GPU's memory, `offset` bytes after `address`."""
        array = np.ascontiguousarray(array)
        if array.nbytes:
            self.call("cuMemcpyHtoD_v2", address + offset, array.ctypes.data, array.nbytes)

    def read(self, address: int, size: int) -> np.ndarray:
        """Waits for the GPU; returns the `size` bytes at an address."""
        self.synchronize()
        array = np.empty(size, np.uint8)
        if size:
            self.call("cuMemcpyDtoH_v2", array.ctypes.data, address, size)
        return array

    def launch(
        self,
        function: ctypes.c_void_p,
        groups: Sequence[int],
        threads: Sequence[int],
        values: Sequence[Any],
        shared: int = 0,
        stream: ctypes.c_void_p | None = None,
    ) -> None:
        """Launches a kernel.

        Args:
          function: the kernel, as `kernel` returns it.
          groups: the size of the grid in blocks, three numbers.
          threads: the size of a block in threads, three numbers.
          values: the arguments of the kernel, ctypes objects.
          shared: the size of the dynamic shared memory, in bytes.
          stream: the CUDA stream; None for the default stream.
        """
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        sizes = [*groups, *threads, shared]
        self.call("cuLaunchKernel", function, *sizes, stream, pointers, None)

    def synchronize(self) -> None:
        """Waits for the GPU."""
        self.call("cuCtxSynchronize")
