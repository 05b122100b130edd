"""Finds what the functions in a library for macOS call, by reading the file, without a Mac.

lief reads the Mach-O file, and capstone reads the instructions for arm64.
"""

import bisect
import re
import struct
from collections.abc import Iterator
from io import BytesIO
from typing import NamedTuple

from k2mps.build import toolchain
from k2mps.core import errors

_PAGE = re.compile(r"\w+, #(0x[0-9a-f]+)")
_OFFSET = re.compile(r"#(0x[0-9a-f]+|\d+)\]")
_TARGET = re.compile(r"#(0x[0-9a-f]+)")
_CONSTANT = re.compile(r"[wx](\d+), #(0x[0-9a-f]+|\d+)")
_STORE = re.compile(r"[wx](\d+), (\[.*\])")
_WRITTEN = re.compile(r"[wx](\d+)\b")
# The registers that a call may change.
_CLOBBERED = tuple(map(str, range(19)))
# In a file with chained fixups, the low bits of a pointer are the address to which it points.
_ADDRESS = (1 << 36) - 1


class Step(NamedTuple):
    """A step of a function: the function calls another function or stores a constant.

    Attributes:
      what: the called C symbol; "-" and the selector of a called method; "[x0, #8]" for a store.
      value: the constant that the function stores, or passes as the third argument of a C function
        or as the first argument of a method.  None if the value is not known.
    """

    what: str
    value: int | None


class Library:
    """A library for macOS on arm64.

    Raises:
      CheckFailedError: the file is not a library for macOS on arm64.
    """

    def __init__(self, content: bytes, name: str):
        self.content = content
        self._binary = toolchain.parse(BytesIO(content))
        if self._binary is None:
            raise errors.CheckFailedError(
                f"{name} is not Mach-O for arm64",
                why="torch may have moved the code for mps to another library",
                next_command="list the wheel's files with python -m zipfile -l",
            )
        defined = (
            symbol for symbol in self._binary.symbols if symbol.value and symbol.numberof_sections
        )
        self._names = {symbol.value: symbol.name for symbol in defined}
        self._addresses = sorted(self._names)
        self._places = {name: address for address, name in self._names.items()}
        self._sections = {section.name: section for section in self._binary.sections}
        table = self._binary.dynamic_symbol_command
        self._indirect = list(table.indirect_symbols) if table else []

    @property
    def macos(self) -> str:
        """The oldest macOS that the file's load command allows, as "14.0"."""
        return ".".join(map(str, self._binary.build_version.minos[:2]))

    def has(self, function: str) -> bool:
        """Returns whether the library has a function, exported or not."""
        return function in self._places

    def exports(self) -> set[str]:
        """Returns the names of the symbols that other libraries can use."""
        return {symbol.name for symbol in self._binary.exported_symbols}

    def reached(self, function: str, through: re.Pattern) -> set[str]:
        """Returns the symbols of all functions that a function calls.

        If the symbol of a called function matches `through`, the result also has the symbols that
        this function calls.  Calls in a block are left out, because a block runs elsewhere or
        later.
        """
        seen, waiting = {function}, [function]
        while waiting:
            for what, _ in self.steps(waiting.pop()):
                if what not in seen and through.search(what):
                    waiting.append(what)
                seen.add(what)
        return seen - {function}

    def steps(self, function: str) -> Iterator[Step]:
        """Yields the steps of a function: the calls, and the stores of constants.

        Yields nothing if the library does not have the function.  The steps are in the order of the
        code, because this method does not follow branches inside of the function.
        """
        begin = self._places.get(function)
        if begin is None:
            return
        after = bisect.bisect_right(self._addresses, begin)
        end = min([*self._addresses[after : after + 1], self._text_end])
        constants: dict[str, int] = {}
        for mnemonic, operands in self._disassembled(begin, end - begin):
            target = _TARGET.fullmatch(operands) if mnemonic in ("b", "bl") else None
            if target and not begin <= int(target[1], 16) < end:
                yield Step(self._called(int(target[1], 16)), constants.get("2"))
            if mnemonic in ("bl", "blr"):
                for register in _CLOBBERED:
                    constants.pop(register, None)
            elif mnemonic.startswith("st"):
                store = _STORE.fullmatch(operands)
                if store and store[1] in constants:
                    yield Step(store[2], constants[store[1]])
            elif constant := _CONSTANT.fullmatch(operands) if mnemonic == "mov" else None:
                constants[constant[1]] = int(constant[2], 0)
            elif written := _WRITTEN.match(operands):
                constants.pop(written[1], None)

    @property
    def _text_end(self) -> int:
        text = self._sections["__text"]
        return text.virtual_address + text.size

    def _called(self, address: int) -> str:
        """Returns the name of the function at an address.

        At the address of a stub, returns the name of the function or method that the stub calls.
        """
        stubs, methods = self._sections.get("__stubs"), self._sections.get("__objc_stubs")
        if stubs and 0 <= address - stubs.virtual_address < stubs.size:
            entry = (address - stubs.virtual_address) // stubs.reserved2
            return self._indirect[stubs.reserved1 + entry].name
        if methods and 0 <= address - methods.virtual_address < methods.size:
            (_, page), (_, load) = self._disassembled(address, 8)
            at = int(_PAGE.fullmatch(page)[1], 16) + int((_OFFSET.search(load) or "00")[1], 0)
            (pointer,) = struct.unpack("<Q", self._bytes(at, 8))
            return "-" + self._bytes(pointer & _ADDRESS, 256).split(b"\0")[0].decode()
        return self._names.get(address, "")

    def _disassembled(self, address: int, size: int) -> Iterator[tuple[str, str]]:
        import capstone

        engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
        for _, _, mnemonic, operands in engine.disasm_lite(self._bytes(address, size), address):
            yield mnemonic, operands

    def _bytes(self, address: int, size: int) -> bytes:
        return bytes(self._binary.get_content_from_virtual_address(address, size))
