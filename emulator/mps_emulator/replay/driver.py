"""CUDA's driver API: memory and kernels of an NVIDIA GPU.

Folders that run on another machine have a copy of this file.  So the file needs only NumPy
and NVIDIA's driver.
"""

import ctypes

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
        self._modules = {}  # {(PTX, the argument `threads` of load()): module}
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

    def call(self, name, *arguments):
        """Calls a function of the driver; raises CudaError.

        Integers have 64 bits, of which a function with a shorter parameter ignores the upper ones.
        """
        error = getattr(self._cuda, name)(
            *(ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments)
        )
        if error:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(error, ctypes.byref(text))
            raise CudaError("{}: {}".format(name, (text.value or b"error %d" % error).decode()))

    def get(self, name, *arguments, kind=ctypes.c_void_p):
        """Calls a function that stores a result at its first argument; returns the result."""
        result = kind()
        self.call(name, ctypes.byref(result), *arguments)
        return result

    def load(self, ptx, threads=None):
        """Compiles PTX, a bytes object, to a module.

        threads: the number of threads that a block must be able to have, which limits
          the registers of a thread.
        """
        log = ctypes.create_string_buffer(8192)
        options = [
            (_JIT_ERROR_LOG_BUFFER, ctypes.addressof(log)),
            (_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, len(log)),
        ]
        if threads is not None:
            options.append((_JIT_THREADS_PER_BLOCK, threads))
        names = (ctypes.c_int * len(options))(*[name for name, _ in options])
        # The driver takes a number in place of a pointer to it.
        values = (ctypes.c_void_p * len(options))(*[v for _, v in options])
        try:
            return self.get("cuModuleLoadDataEx", ptx + b"\0", len(options), names, values)
        except CudaError as error:
            raise CudaError(f"{error}\n{log.value.decode()}")

    def kernel(self, ptx, entry, threads):
        """A kernel of PTX, for blocks of up to `threads` threads.

        If the threads of the kernel use too many registers for that, compiles the PTX again.
        """
        function = self._function(ptx, entry, None)
        most = self.get("cuFuncGetAttribute", _MOST_THREADS, function, kind=ctypes.c_int).value
        return function if threads <= most else self._function(ptx, entry, threads)

    def _function(self, ptx, entry, threads):
        module = self._modules.get((ptx, threads))
        if module is None:
            module = self._modules[ptx, threads] = self.load(ptx, threads)
        return self.get("cuModuleGetFunction", module, entry.encode())

    def allocate(self, size):
        """Allocates memory of the GPU; returns its address."""
        return self.get("cuMemAlloc_v2", max(size, 1), kind=ctypes.c_uint64).value

    def free(self, address):
        self.call("cuMemFree_v2", address)

    def write(self, address, offset, array):
        """Copies an array to the GPU's memory."""
        array = np.ascontiguousarray(array)
        if array.nbytes:
            self.call("cuMemcpyHtoD_v2", address + offset, array.ctypes.data, array.nbytes)

    def read(self, address, size):
        """Waits for the GPU; returns the bytes at an address."""
        self.synchronize()
        array = np.empty(size, np.uint8)
        if size:
            self.call("cuMemcpyDtoH_v2", array.ctypes.data, address, size)
        return array

    def launch(self, function, groups, threads, values, shared=0, stream=None):
        """Launches a kernel.

        Args:
          groups, threads: the sizes of the grid in blocks and of a block in threads,
            three numbers each.
          values: the arguments, ctypes objects.
          shared: the size of dynamic shared memory, in bytes.
        """
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        sizes = [*groups, *threads, shared]
        self.call("cuLaunchKernel", function, *sizes, stream, pointers, None)

    def synchronize(self):
        """Waits for the GPU."""
        self.call("cuCtxSynchronize")
