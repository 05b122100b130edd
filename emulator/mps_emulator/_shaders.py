"""Implements torch.mps.compile_shader() and load_metallib()."""

import ctypes
import math
from types import ModuleType

from ._text import take_text

# torch and the emulator's library, which use() sets: Python imports this module before torch.
_torch = None
_native = None

_SCALARS = ("fp16", "bf16", "int32", "int16", "int8", "uint8")


class _Argument(ctypes.Structure):
    """An argument of a kernel, as shader_library.mm reads it: bytes, or a place in a buffer."""

    _fields_ = [
        ("buffer", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_uint64),
    ]


def use(torch: ModuleType, library: ctypes.CDLL) -> None:
    """Sets the module torch and the emulator's library, which this module uses."""
    global _torch, _native
    _torch, _native = torch, library


# The names of this class and of _mps_MetalKernel are those of torch's own classes.
class _mps_ShaderLibrary:
    """A compiled source.  Each kernel of the source is an attribute of the object.

    Raises:
      SyntaxError: the compiler refuses the source.  The error has the compiler's message.
      RuntimeError: the compilation failed for another reason.
    """

    def __init__(self, source: str):
        self._library = ctypes.c_void_p()
        self._kernels = {}
        refused = ctypes.c_int()
        message = take_text(
            _native.mps_emulator_compile_shader(
                source.encode(), ctypes.byref(self._library), ctypes.byref(refused)
            )
        )
        if message is not None:
            raise (SyntaxError if refused.value else RuntimeError)(message)

    def __getattr__(self, name: str) -> "_mps_MetalKernel":
        # Python asks objects for names with "__", which are no kernels.  copy makes objects without
        # __init__: for these, self._kernels would call this function again, without end.
        if name.startswith("__") or "_kernels" not in self.__dict__:
            raise AttributeError(name)
        if name not in self._kernels:
            self._kernels[name] = _mps_MetalKernel(self, name)
        return self._kernels[name]

    def __dir__(self):
        names = _native.mps_emulator_shader_names(self._library)
        return take_text(names).split()

    def __del__(self):
        # If __init__ failed, there is no library.
        if self.__dict__.get("_library"):
            _native.mps_emulator_release(self._library)


class _Metallib(_mps_ShaderLibrary):
    """A library that a compiler for Metal has made.  Each of its kernels is an attribute.

    Args:
      content: the bytes of a .metallib file.
    Raises:
      RuntimeError: the bytes are no .metallib.
    """

    def __init__(self, content: bytes):
        self._library = ctypes.c_void_p()
        self._kernels = {}
        self._content = content
        message = take_text(
            _native.mps_emulator_load_metallib(
                content, ctypes.c_uint64(len(content)), ctypes.byref(self._library)
            )
        )
        if message is not None:
            raise RuntimeError(message)

    def __dir__(self):
        # The native library translates a kernel when a program uses the kernel, and has no list of
        # the kernels before that.
        from .msl.air.metallib import Metallib

        return Metallib(self._content).kernels


class _mps_MetalKernel:
    """A kernel.  A call of the object encodes the kernel on torch's stream.

    Raises:
      RuntimeError: the library has no kernel of this name.
    """

    def __init__(self, library: _mps_ShaderLibrary, name: str):
        self._pipeline = ctypes.c_void_p()
        limits = (ctypes.c_uint64 * 3)()
        message = take_text(
            _native.mps_emulator_shader_kernel(
                library._library, name.encode(), ctypes.byref(self._pipeline), limits
            )
        )
        if message is not None:
            raise RuntimeError(message)
        self.max_threads_per_threadgroup = limits[0]
        self.thread_execution_width = limits[1]
        self.static_thread_group_memory_length = limits[2]

    def __del__(self):
        # If __init__ failed, there is no pipeline.
        if self.__dict__.get("_pipeline"):
            _native.mps_emulator_release(self._pipeline)

    def __call__(self, *args, threads=None, group_size=None, arg_casts=None, error_buf_idx=None):
        """Encodes the kernel and does not wait.

        Args:
          args: argument number i is bound to [[buffer(i)]].  An argument is a tensor on mps, a CPU
            tensor without dimensions, a number, or a tuple or list of numbers.  By default an int
            has 64 bits and a float has 32 bits.
          threads: the size of the grid in threads, one to three numbers; by default the number of
            elements of the first tensor among the arguments.
          group_size: the size of a threadgroup in threads, as many numbers as in `threads`.
          arg_casts: the type of all numbers, or {index of an argument: type}.  The types are fp16,
            bf16, int32, int16, int8 and uint8.
          error_buf_idx: the index of the kernel's buffer argument for torch's error buffer.
        Raises:
          RuntimeError: an argument is of none of these kinds.
          ValueError: the threadgroup is larger than max_threads_per_threadgroup.
        """
        threads = _sizes(threads)
        group = _sizes(group_size)
        arguments = self._arguments(args, arg_casts)
        if threads is None:
            threads = self._default_threads(args)
        group = self._threadgroup(group, threads)
        message = take_text(
            _native.mps_emulator_run_shader(
                self._pipeline,
                arguments,
                ctypes.c_uint64(len(args)),
                ctypes.c_int64(-1 if error_buf_idx is None else error_buf_idx),
                _metal_size(threads),
                _metal_size(group),
            )
        )
        if message is not None:
            raise RuntimeError(message)

    def _arguments(self, args, arg_casts):
        """Returns the arguments of a call as an array of _Argument.

        Raises:
          RuntimeError: an argument, or `arg_casts`, is of a wrong kind.
        """
        if not isinstance(arg_casts, (str, dict, type(None))):
            raise RuntimeError("Unexpected caster arg type " + type(arg_casts).__name__)
        arguments = (_Argument * len(args))()
        for index, argument in enumerate(args):
            if isinstance(argument, _torch.Tensor):
                arguments[index] = _tensor(argument)
            else:
                cast = arg_casts.get(index) if isinstance(arg_casts, dict) else arg_casts
                content = _bytes(argument, cast)
                arguments[index] = _Argument(None, 0, content, len(content))
        return arguments

    def _default_threads(self, args):
        """Returns the size of the grid if a call gives none.

        Raises:
          RuntimeError: no argument is a tensor.
        """
        for argument in args:
            if isinstance(argument, _torch.Tensor):
                return [argument.numel()]
        raise RuntimeError("Number of threads is undefined or has wrong dimension")

    def _threadgroup(self, given, threads):
        """Returns the size of a threadgroup: the given one, or a default if `given` is None.

        Raises:
          RuntimeError: `given` has another number of dimensions than the grid.
          ValueError: the threadgroup is too large.
        """
        largest = self.max_threads_per_threadgroup
        if given is None:
            return [min(max(threads[0], 1), largest) if len(threads) == 1 else largest]
        if len(given) != len(threads):
            raise RuntimeError("threads and group_size must have the same number of dimensions")
        if math.prod(given) > largest:
            raise ValueError(f"Threadgroup size exceeds {largest} limit")
        return [max(size, 1) for size in given]


def _sizes(given):
    """Returns a list of one to three sizes, or None if `given` is None.

    Raises:
      RuntimeError: the number of sizes is another.
    """
    if given is None:
        return None
    sizes = [given] if isinstance(given, int) else list(given)
    if not 0 < len(sizes) < 4:
        raise RuntimeError("a grid has one to three dimensions")
    return sizes


def _metal_size(sizes):
    """Returns one to three sizes as Metal's three: the size of a missing dimension is 1."""
    width, height, depth, *_ = [*sizes, 1, 1]
    return (ctypes.c_uint64 * 3)(width, height, depth)


def _tensor(tensor):
    """Returns the _Argument for a tensor.

    Raises:
      RuntimeError: the tensor is on the CPU and has dimensions.
    """
    if tensor.device.type == "cpu":
        if tensor.dim() != 0:
            raise RuntimeError("Passed CPU tensor to MPS op")
        # Metal has no double.  torch converts a double to a float here.
        narrow = {"torch.float64": "float32", "torch.complex128": "complex64"}
        if str(tensor.dtype) in narrow:
            tensor = tensor.to(getattr(_torch, narrow[str(tensor.dtype)]))
        content = ctypes.string_at(tensor.data_ptr(), tensor.element_size())
        return _Argument(None, 0, content, len(content))
    return _Argument(
        tensor.untyped_storage().data_ptr() or None,
        tensor.storage_offset() * tensor.element_size(),
        None,
        0,
    )


def _bytes(argument, cast):
    """Returns the bytes of a number or of a list of numbers, converted to the type `cast`.

    Args:
      cast: a name from _SCALARS, or None.  With None, an int has 64 bits, and a float has 32 bits.
    Raises:
      RuntimeError: the argument is of another kind, or `cast` is no such name.
    """
    values = argument
    if isinstance(argument, (tuple, list)):
        if not argument:
            raise RuntimeError("Empty list/tuple can not be an argument to metal kernel")
        if isinstance(argument[0], _torch.Tensor):
            raise RuntimeError(
                "a list of tensors needs the buffers' addresses on the GPU, "
                "which the emulator lacks: pass each tensor as an argument"
            )
    else:
        values = [argument]
    if isinstance(values[0], int):
        tensor = _torch.tensor(values, dtype=_torch.int64, device="cpu")
    elif isinstance(values[0], float):
        tensor = _torch.tensor(values, dtype=_torch.float32, device="cpu")
    else:
        raise RuntimeError("Unsupported argument type")
    if cast is not None:
        if cast not in _SCALARS:
            raise RuntimeError("Unsupported cast instruction " + cast)
        cast = {"fp16": "float16", "bf16": "bfloat16"}.get(cast, cast)
        tensor = tensor.to(getattr(_torch, cast))
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def load_metallib(content: bytes) -> _Metallib:
    """Returns the library in the bytes of a .metallib file."""
    return _Metallib(content)


def load_metallib_from_path(path: str) -> _Metallib:
    """Returns the library in a .metallib file.

    Raises:
      RuntimeError: the file cannot be read, or is no .metallib.
    """
    try:
        with open(path, "rb") as file:
            return _Metallib(file.read())
    except OSError as error:
        raise RuntimeError(f"Failed to create metal library, error: {error}") from None
