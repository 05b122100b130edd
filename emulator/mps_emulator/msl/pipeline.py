"""Compiles a source text to a kernel library or to PTX, or refuses the program."""

import os
import re
import tempfile
from collections.abc import Sequence

from . import codegen, lexer, nvptx, toolchain
from .air import metallib, preparing, writing
from .diagnostics import Diagnostic, Location, SourceMap
from .errors import Refused, ToolError
from .kernel import Kernel
from .rewriting import Rewriter

# The file name in Metal's messages about a source text that does not come from a file.
PROGRAM_SOURCE = "program_source"

# The file name of the rewritten text in libclang's locations.
_PARSED_FILE = "program.clcpp"

_PREFACE = '#include "implementation/prelude.h"\n'
# Metal's compiler declares namespace metal even in programs that include no header.
_NAMES = '#include "implementation/stdlib.h"\n'
_PTX_PREFACE = '#include "implementation/target_nvptx.h"\n'
_LIBRARY_PREFACE = '#include "implementation/thunk.h"\n'
# After this line, clang may rearrange sums, and may assume that no value is a NaN or an
# infinity.  The headers are before this line, so clang compiles the headers by IEEE's rules.
_FAST_MATH = "#pragma float_control(precise, off)\n"

# The pragma for full unrolling is removed from code for the CPU.  A GPU keeps an array in
# registers only if all its indices are constants, so kernels for GPUs need the pragma.  On a CPU
# full unrolling costs compile time and makes no kernel faster: clang unrolls small loops anyway.
_FULL_UNROLLING = re.compile(
    r"^[ \t]*#[ \t]*pragma[ \t]+clang[ \t]+loop[ \t]+unroll[ \t]*\([ \t]*full[ \t]*\)[ \t]*$", re.M
)

# The maximum number of times that the program is repaired and parsed again.  Nested conditional
# operators need several rounds, because a repair can make clang refuse the operator around the
# repaired one.
_MOST_REPAIRS = 20

_PREPROCESSOR_MESSAGE = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): "
    r"(?P<severity>fatal error|error|note): (?P<message>.*)$"
)


class Program:
    """A source text with its compiler options.

    Args:
      path: the path of the file with the text.
      name: the file name in messages.
      include_folders: the folders in which #include "..." looks for files.
      clang: the path of clang++, or None to search for clang++.
      fast_math: whether the compiler may use Metal's fast math.
    Raises:
      ToolError: clang++ is not found.
    """

    def __init__(
        self,
        path: str,
        name: str,
        include_folders: Sequence[str] = (),
        clang: str | None = None,
        fast_math: bool = True,
    ):
        self.path = path
        self.name = name
        self.clang = clang or toolchain.find_clang()
        self.fast_math = fast_math
        self._include_folders = include_folders
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            self._text = file.read()

    def analyse(self) -> tuple[Rewriter, list[Kernel]]:
        """Parses and checks the program; returns the rewritten text and the kernels.

        Raises:
          Refused: Metal's compiler would refuse the program.
          ToolError: clang or libclang is missing or failed.
        """
        tokens = lexer.tokenize(self._preprocess())
        for token in tokens:
            token.file = self._shown_name(token.file)
        source_map = SourceMap(tokens, self._known_texts(tokens))
        text = Rewriter(tokens, source_map)
        if text.errors:
            raise Refused(text.errors, source_map)
        analysis = self._parse(text, source_map)
        if analysis.errors:
            raise Refused(analysis.errors, source_map)
        for call in analysis.suspending_calls:
            text.mark_call(call.first, call.last, call.is_void)
        return text, analysis.kernels

    def build(self, output: str, cpu: str, report_accesses: bool = False) -> None:
        """Compiles the program to a kernel library, a shared object.

        Args:
          output: the path of the new file.
          cpu: the processor for clang's option -march.
          report_accesses: whether the library reports its accesses to memory to the executor.
        Raises:
          Refused, ToolError: see `analyse`.
        """
        text, kernels = self.analyse()
        with _scratch_folder(output) as folder:
            self._compile(
                toolchain.compile_command(
                    self.clang,
                    self.fast_math,
                    cpu,
                    _write(folder, _PARSED_FILE, self._library_text(text, kernels)),
                    output,
                    report_accesses,
                )
            )

    def unoptimized_ir(self) -> tuple[str, list[Kernel]]:
        """Returns LLVM's IR before all optimizations, and the kernels.

        The IR has a function for each function of the program and of Metal's library.  Kernel
        number n is called by the function mps_emulator_msl_thunk_n.

        Raises:
          Refused, ToolError: see `analyse`.
        """
        text, kernels = self.analyse()
        with tempfile.TemporaryDirectory() as folder:
            source = _write(folder, _PARSED_FILE, self._library_text(text, kernels))
            output = os.path.join(folder, "program.ll")
            options = [*toolchain.dialect_options(self.fast_math), "-DMSL_CODE", "-O2"]
            options += ["-Xclang", "-disable-llvm-passes", "-S", "-emit-llvm", source, "-o", output]
            self._compile([self.clang, *options])
            with open(output, encoding="utf-8") as file:
                return file.read(), kernels

    def build_ptx(
        self, output: str, gpu: str, libdevice: str | None = None, whole_simdgroups: bool = False
    ) -> list[Kernel]:
        """Compiles the program to PTX, the assembly language of NVIDIA's GPUs.

        Args:
          output: the path of the new file.
          gpu: the oldest architecture on which the PTX runs, like sm_80.
          libdevice: the path of CUDA's libdevice.10.bc.  If `libdevice` is None, the PTX calls the
            functions of libdevice but lacks their code.
          whole_simdgroups: True promises that all lanes of a simdgroup call each simdgroup
            function together.  Then the kernels need no code that finds the active lanes.
        Raises:
          Refused: see `analyse`.
          ToolError: see `analyse`; or NVIDIA's GPUs lack a feature that the program uses.
        """
        text, kernels = self.analyse()
        with _scratch_folder(output) as folder:
            source = _write(folder, _PARSED_FILE, self._ptx_text(text, kernels))
            ir = os.path.join(folder, "program.ll")
            self._compile(
                toolchain.nvptx_ir_command(
                    self.clang, gpu, self.fast_math, source, ir, libdevice, whole_simdgroups
                )
            )
            with open(ir, encoding="utf-8") as file:
                finished = nvptx.finish(file.read(), kernels)
            finished = _write(folder, "finished.ll", finished)
            self._compile(toolchain.ptx_command(self.clang, gpu, self.fast_math, finished, output))
        return kernels

    def build_metallib(self, output: str) -> list[Kernel]:
        """Compiles the program to a .metallib, a library of AIR 2.6 for macOS 14.

        Args:
          output: the path of the new file.
        Raises:
          ValueError: the program is compiled with fast math.
          Refused: see `analyse`.
          ToolError: see `analyse`; or the emulator cannot write a feature of the program as AIR.
        """
        if self.fast_math:
            raise ValueError("AIR is written without fast math only")
        text, kernels = self.analyse()
        modules = []
        with _scratch_folder(output) as folder:
            rewritten, after = self._with_entries(text, kernels, preparing.entry)
            source = _write(folder, _PARSED_FILE, f"{_PREFACE}{_NAMES}{rewritten}{after}\n")
            ir = os.path.join(folder, "program.ll")
            self._compile(toolchain.air_ir_command(self.clang, source, ir))
            with open(ir, encoding="utf-8") as file:
                prepared = _write(folder, "prepared.ll", preparing.prepare(file.read()))
            for command in toolchain.air_passes(self.clang, prepared, ir):
                self._compile(command)
            with open(ir, encoding="utf-8") as file:
                written = writing.Modules(file.read(), os.path.basename(self.name))
            for number, kernel in enumerate(kernels):
                module = written.module(number, kernel)
                modules.append((kernel.name, toolchain.assemble_air(module)))
        with open(output, "wb") as file:
            file.write(metallib.write(modules))
        return kernels

    def _compile(self, command):
        status, printed = toolchain.run(command)
        if status != 0:
            raise ToolError(
                "clang refuses the program that the front end has rewritten. This is an error "
                "of the emulator; please report it together with the kernel:\n" + printed
            )

    # ---- Preprocessing

    def _preprocess(self):
        command = toolchain.preprocess_command(self.clang, self.path, self._include_folders)
        status, printed = toolchain.run(command)
        if status != 0:
            raise self._refusal_of_preprocessor(printed)
        return printed

    def _refusal_of_preprocessor(self, printed):
        """Returns the exception for what clang printed when it failed to preprocess the program."""
        diagnostics = []
        for line in printed.splitlines():
            match = _PREPROCESSOR_MESSAGE.match(line)
            if match is None:
                continue
            location = Location(
                self._shown_name(match["file"]), int(match["line"]), int(match["column"])
            )
            if match["severity"] == "note":
                if diagnostics:
                    diagnostics[-1].add_note(location, match["message"])
            else:
                diagnostics.append(Diagnostic(location, match["message"]))
        if not diagnostics:
            return ToolError("clang cannot preprocess the text:\n" + printed)
        return Refused(diagnostics, SourceMap([], {self.name: self._text}))

    def _shown_name(self, file):
        return self.name if file == self.path else file

    def _known_texts(self, tokens):
        texts = {self.name: self._text}
        for file in {token.file for token in tokens} - {self.name}:
            try:
                with open(file, encoding="utf-8", errors="replace") as stream:
                    texts[file] = stream.read()
            except OSError:
                pass  # not a file: a name like "<built-in>"
        return texts

    # ---- Parsing and code

    def _parse(self, text, source_map):
        cindex = toolchain.load_libclang()
        # .analysis imports the Python package clang, so load_libclang() must run first: it
        # raises ToolError if the package is missing.
        from .analysis import Analysis

        options = toolchain.dialect_options(self.fast_math)
        options += ["-Wpre-c++17-compat", "-ferror-limit=100"]
        options.remove("-w")
        repaired = set()
        for _ in range(_MOST_REPAIRS):
            rewritten, rewritten_map = text.emit()
            source = _PREFACE + _NAMES + rewritten
            rewritten_map = rewritten_map.shifted(len((_PREFACE + _NAMES).encode()))
            unit = cindex.Index.create().parse(
                _PARSED_FILE, args=options, unsaved_files=[(_PARSED_FILE, source)]
            )
            refused = self._refused_conditionals(unit, text, rewritten_map) - repaired
            if not refused:
                break
            for question in refused:
                text.take_operands_by_value(question)
            repaired |= refused
        return Analysis(unit, _PARSED_FILE, rewritten_map, source_map, text)

    def _refused_conditionals(self, unit, text, rewritten_map):
        """Returns the numbers of the tokens `?` at which clang has reported an error.

        In MSL, the two results of a conditional operator may be objects of one class in two
        address spaces.  In C++ for OpenCL such objects have two types, and clang refuses the
        operator.  The rewriter sees only tokens, not types, so it cannot find these operators.
        This method reads only the place of clang's error, because the text of the error changes
        from release to release.  The caller repairs each operator once: if clang still refuses a
        repaired operator, the program has another mistake.
        """
        places = {
            rewritten_map.token_at(found.location.offset)[0]
            for found in unit.diagnostics
            if found.location.file is not None and found.location.file.name == _PARSED_FILE
        }
        return {place for place in places if text.is_conditional(place)}

    def _with_entries(self, text, kernels, entry):
        """Returns the rewritten text with some entries, and the other entries to put after it.

        The entries in the text are those of explicit instantiations of kernel templates.

        Args:
          entry: a function that takes the number of a kernel and the Kernel, and returns the text
            of the kernel's entry.
        """
        anchors = {}
        after = []
        for number, kernel in enumerate(kernels):
            if kernel.instantiation is None:
                after.append(entry(number, kernel))
            else:
                anchors[kernel.instantiation] = " " + entry(number, kernel)
        rewritten, _ = text.emit(anchors)
        if self.fast_math:
            rewritten = _FAST_MATH + rewritten
        return rewritten, "\n".join(after)

    def _ptx_text(self, text, kernels):
        rewritten, after = self._with_entries(text, kernels, nvptx.entry)
        return "".join(
            [_PREFACE, _PTX_PREFACE, _NAMES, nvptx.declarations(kernels), rewritten, after, "\n"]
        )

    def _library_text(self, text, kernels):
        rewritten, after = self._with_entries(text, kernels, codegen.thunk)
        rewritten = _FULL_UNROLLING.sub("", rewritten)
        return "".join(
            [
                _PREFACE,
                _NAMES,
                _LIBRARY_PREFACE,
                codegen.declarations(kernels),
                rewritten,
                after,
                codegen.tables(kernels),
            ]
        )


def _scratch_folder(output):
    """Returns a new temporary folder beside the file `output`."""
    return tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(output)))


def _write(folder, name, text):
    """Writes a new file into a folder; returns the path of the file."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    return path
