"""Reads and writes .metallib, the container of compiled kernels."""

import dataclasses
import hashlib
import struct
from collections.abc import Sequence

from ..errors import ToolError

_MAGIC = b"MTLB"
# The offsets of the parts of a container follow its size.
_SIZE = struct.Struct("<Q")
_SIZE_AT = 16
_PARTS = struct.Struct("<8Q")
_PARTS_AT = _SIZE_AT + _SIZE.size
_KERNEL = 2
# What follows the magic number of a container for macOS 14.
_MACOS_14 = struct.pack("<6H", 0x8001, 2, 7, 0x8100, 14, 0)
_AIR_AND_LANGUAGE = struct.pack("<4H", 2, 6, 3, 1)
# Before the bitcode stand a magic number, a version, the offset, the size, and a processor.
_WRAPPER = struct.Struct("<5I")
_BITCODE = b"BC\xc0\xde"


@dataclasses.dataclass
class _Entry:
    """A function of a container."""

    kind: int
    air_version: tuple[int, int]
    begin: int  # the bitcode is at content[begin : end]
    end: int


class Metallib:
    """A container of compiled functions.

    Args:
      content: bytes that contain the container.
      at: where the container begins in `content`, in bytes.
    Attributes:
      size: the size of the container, in bytes.
    Raises:
      ToolError: there is no container.
    """

    def __init__(self, content: bytes | memoryview, at: int = 0):
        self._content = memoryview(content)
        self._at = at
        self._entries = {}
        if self._content[at : at + len(_MAGIC)] != _MAGIC:
            raise ToolError("this is no Metal library: it does not begin with MTLB")
        try:
            self._read(at)
        except (struct.error, KeyError, UnicodeDecodeError) as error:
            raise ToolError(f"the Metal library is damaged: {error}") from None

    def _read(self, at):
        functions, _, _, _, _, _, bitcode, _ = _PARTS.unpack_from(self._content, at + _PARTS_AT)
        (self.size,) = _SIZE.unpack_from(self._content, at + _SIZE_AT)
        (count,) = struct.unpack_from("<I", self._content, at + functions)
        position = at + functions + 4
        for _ in range(count):
            (size,) = struct.unpack_from("<I", self._content, position)
            fields = self._fields(position + 4)
            begin = at + bitcode + struct.unpack("<3Q", fields[b"OFFT"])[2]
            (length,) = _SIZE.unpack(fields[b"MDSZ"])
            name = bytes(fields[b"NAME"]).rstrip(b"\0").decode()
            version = struct.unpack_from("<2H", fields[b"VERS"])
            self._entries[name] = _Entry(fields[b"TYPE"][0], version, begin, begin + length)
            position += size

    def _fields(self, position):
        """Returns the fields of the function at `position`, {tag: content}."""
        fields = {}
        while (tag := bytes(self._content[position : position + 4])) != b"ENDT":
            (length,) = struct.unpack_from("<H", self._content, position + 4)
            fields[tag] = self._content[position + 6 : position + 6 + length]
            position += 6 + length
        return fields

    @property
    def content(self) -> bytes:
        """The bytes of the container."""
        return bytes(self._content[self._at : self._at + self.size])

    @property
    def kernels(self) -> list[str]:
        """The names of all kernels."""
        return [name for name, entry in self._entries.items() if entry.kind == _KERNEL]

    def air_version(self, name: str) -> tuple[int, int]:
        """Returns the version of AIR of a function, such as (2, 6).

        Raises:
          KeyError: the container has no such function.
        """
        return self._entries[name].air_version

    def bitcode(self, name: str) -> memoryview:
        """Returns the bitcode of a function.

        Raises:
          KeyError: the container has no such function.
        """
        entry = self._entries[name]
        return self._content[entry.begin : entry.end]


def find(content: bytes) -> list[Metallib]:
    """Returns the containers in `content`, such as a shared library of torch for macOS."""
    found = []
    at = content.find(_MAGIC)
    while at >= 0:
        if _is_container(content, at):
            found.append(Metallib(content, at))
        at = content.find(_MAGIC, at + 1)
    return found


def _is_container(content, at):
    """Whether the part after a magic number can be a container; the number can be a coincidence."""
    rest = len(content) - at
    if rest < _PARTS_AT + _PARTS.size:
        return False
    sizes = _SIZE.unpack_from(content, at + _SIZE_AT) + _PARTS.unpack_from(content, at + _PARTS_AT)
    return max(sizes) <= rest


def write(kernels: Sequence[tuple[str, bytes]]) -> bytes:
    """Returns the content of a container of AIR 2.6 for macOS 14, like that of torch.

    Args:
      kernels: the name and the bitcode of each kernel.
    """
    entries, modules = [], []
    offset = 0
    for number, (name, bitcode) in enumerate(kernels):
        if bitcode[:4] == _BITCODE:
            size = len(bitcode)
            bitcode = _WRAPPER.pack(0x0B17C0DE, 0, _WRAPPER.size, size, 0xFFFFFFFF) + bitcode
            bitcode += bytes(-len(bitcode) % 16)
        # No kernel has the two lists of further fields: each has the size 8.
        offsets = struct.pack("<3Q", 8 * number, 8 * number, offset)
        fields = _field(b"NAME", name.encode() + b"\0") + _field(b"TYPE", bytes([_KERNEL]))
        fields += _field(b"HASH", hashlib.sha256(bitcode).digest())
        fields += _field(b"MDSZ", _SIZE.pack(len(bitcode))) + _field(b"OFFT", offsets)
        fields += _field(b"VERS", _AIR_AND_LANGUAGE) + b"ENDT"
        entries.append(struct.pack("<I", len(fields) + 4) + fields)
        modules.append(bitcode)
        offset += len(bitcode)
    functions = b"".join(entries)
    lists = (struct.pack("<I", 4) + b"ENDT") * len(kernels)
    begin = _PARTS_AT + _PARTS.size
    first = begin + 4 + len(functions) + 4
    second = first + len(lists)
    modules_at = second + len(lists)
    parts = (begin, len(functions), first, len(lists), second, len(lists), modules_at, offset)
    head = _MAGIC + _MACOS_14 + _SIZE.pack(modules_at + offset) + _PARTS.pack(*parts)
    count = struct.pack("<I", len(kernels))
    return b"".join([head, count, functions, b"ENDT", lists, lists, *modules])


def _field(tag, content):
    return tag + struct.pack("<H", len(content)) + content
