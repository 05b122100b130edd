"""CUDA's driver API: memory and kernels of an NVIDIA GPU.

The module needs only NumPy and a driver: programs for another machine take a copy of
this file along.
"""

import ctypes

import numpy as np

# Constants of the driver API.
_JIT_THREADS_PER_BLOCK = 1
_JIT_ERROR_LOG_BUFFER = 5
_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6
_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0


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
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoGpu(f"NVIDIA's driver is not installed ({error})")
        try:
            self.call("cuInit", 0)
            device = ctypes.c_int()
            self.call("cuDeviceGet", ctypes.byref(device), 0)
        except CudaError as error:
            raise NoGpu(str(error))
        name = ctypes.create_string_buffer(100)
        self.call("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode()
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        """Calls a function of the driver; raises CudaError."""
        error = getattr(self._cuda, name)(*arguments)
        if error:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(error, ctypes.byref(text))
            raise CudaError("{}: {}".format(name, (text.value or b"error %d" % error).decode()))

    def load(self, ptx, threads=None):
        """Compiles PTX, a bytes object, to a module.

        threads: the number of threads that a block must be able to have, which limits
          the registers of a thread.
        """
        module = ctypes.c_void_p()
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
            self.call(
                "cuModuleLoadDataEx", ctypes.byref(module), ptx + b"\0", len(options), names, values
            )
        except CudaError as error:
            raise CudaError(f"{error}\n{log.value.decode()}")
        return module

    def function(self, module, entry):
        """The kernel of a module with this entry."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        return function

    def most_threads(self, function):
        """The largest number of threads in a block of a kernel."""
        value = ctypes.c_int()
        self.call(
            "cuFuncGetAttribute",
            ctypes.byref(value),
            _FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            function,
        )
        return value.value

    def allocate(self, size):
        """Allocates memory of the GPU; returns its address."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address):
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address, offset, array):
        """Copies an array to the GPU's memory."""
        array = np.ascontiguousarray(array)
        if array.nbytes:
            self.call(
                "cuMemcpyHtoD_v2",
                ctypes.c_uint64(address + offset),
                array.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_size_t(array.nbytes),
            )

    def read(self, address, size):
        """Waits for the GPU; returns the bytes at an address."""
        self.synchronize()
        array = np.empty(size, np.uint8)
        if size:
            self.call(
                "cuMemcpyDtoH_v2",
                array.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_uint64(address),
                ctypes.c_size_t(size),
            )
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
        self.call(
            "cuLaunchKernel",
            function,
            *map(ctypes.c_uint, groups),
            *map(ctypes.c_uint, threads),
            ctypes.c_uint(shared),
            stream,
            pointers,
            None,
        )

    def synchronize(self):
        """Waits for the GPU."""
        self.call("cuCtxSynchronize")
