"""Compiles a source text to a kernel library, or refuses it."""

import os
import re
import tempfile

from . import codegen, lexer, nvptx, toolchain
from .diagnostics import Diagnostic, Location, SourceMap
from .errors import Refused, ToolError
from .rewriting import Rewriter

# Metal's name of a text that does not come from a file.
PROGRAM_SOURCE = "program_source"

# The file name of the rewritten text for libclang.
_PARSED_FILE = "program.clcpp"

_PREFACE = '#include "implementation/prelude.h"\n'
# As with Metal's compiler every program sees namespace metal, whatever headers
# the program includes.
_NAMES = '#include "implementation/stdlib.h"\n'
_PTX_PREFACE = '#include "implementation/target_nvptx.h"\n'
_LIBRARY_PREFACE = '#include "implementation/thunk.h"\n'
# From this line on the compiler may rearrange sums, and may assume that no value is
# a NaN or an infinity.  The headers before this line keep IEEE's rules.
_FAST_MATH = "#pragma float_control(precise, off)\n"

# Kernels ask for full unrolling because a GPU keeps an array in registers only if
# all its indices are constants.  On a CPU full unrolling costs compile time and
# gains nothing; clang unrolls small loops without the pragma.
_UNROLLED_TO_THE_LAST = re.compile(
    r"^[ \t]*#[ \t]*pragma[ \t]+clang[ \t]+loop[ \t]+unroll[ \t]*\([ \t]*full[ \t]*\)[ \t]*$", re.M
)

# The rounds of repairs: a repaired operand may be part of another one.
_MOST_REPAIRS = 20

_PREPROCESSOR_MESSAGE = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): "
    r"(?P<severity>fatal error|error|note|warning): (?P<message>.*)$"
)


class Program:
    """One source text under one set of options.

    path:            the file.
    name:            the file name in messages.
    include_folders: where #include "..." looks.
    """

    def __init__(self, path, name, include_folders=(), clang=None, fast_math=True):
        self.path = path
        self.name = name
        self.clang = clang or toolchain.find_clang()
        self.fast_math = fast_math
        self._include_folders = include_folders
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            self._text = file.read()

    def analyse(self):
        """Returns (Rewriter, [Kernel]).  Raises Refused."""
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

    def build(self, output, cpu, check_races=False):
        """Writes the kernel library to the file `output`."""
        text, kernels = self.analyse()
        with _scratch_folder(output) as folder:
            self._compile(
                toolchain.compile_command(
                    self.clang,
                    self.fast_math,
                    cpu,
                    _write(folder, _PARSED_FILE, self._library_text(text, kernels)),
                    output,
                    check_races,
                )
            )

    def build_ptx(self, output, gpu, libdevice=None, whole_simdgroups=False):
        """Writes the kernels as PTX to the file `output`.

        whole_simdgroups: whether all lanes of a SIMD group reach each simdgroup
            function.  If so, the kernels need not find out which lanes reach it.

        Returns [Kernel].  Raises ToolError for features that this target lacks.
        """
        text, kernels = self.analyse()
        kind = (self.clang, gpu)
        with _scratch_folder(output) as folder:
            source = _write(folder, _PARSED_FILE, self._ptx_text(text, kernels))
            ir = os.path.join(folder, "program.ll")
            self._compile(
                toolchain.nvptx_ir_command(
                    *kind, self.fast_math, source, ir, libdevice, whole_simdgroups
                )
            )
            with open(ir, encoding="utf-8") as file:
                finished = nvptx.finish(file.read(), kernels)
            self._compile(
                toolchain.ptx_command(
                    *kind, self.fast_math, _write(folder, "finished.ll", finished), output
                )
            )
        return kernels

    def _compile(self, command):
        status, printed = toolchain.run(command)
        if status != 0:
            raise ToolError(
                "clang refuses the program as the front end rewrote it; this is an "
                "error of the emulator, please report it with the kernel:\n" + printed
            )

    # ---- Preprocessing

    def _preprocess(self):
        command = toolchain.preprocess_command(self.clang, self.path, self._include_folders)
        status, printed = toolchain.run(command)
        if status != 0:
            raise self._refusal_of_preprocessor(printed)
        return printed

    def _refusal_of_preprocessor(self, printed):
        diagnostics = []
        for line in printed.splitlines():
            match = _PREPROCESSOR_MESSAGE.match(line)
            if match is None or match["severity"] == "warning":
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
                pass  # names like "<built-in>"
        return texts

    # ---- Parsing and code

    def _parse(self, text, source_map):
        cindex = toolchain.load_libclang()
        # analysis imports the package clang, which load_libclang() must have found before.
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
        """The tokens ? of the conditional operators that clang refuses, a set.

        In MSL the results may be objects of a class in two address spaces.  In C++ for OpenCL these
        are two types, and clang finds no common one.  The tokens do not show the types, so the
        rewriter alone cannot know which operators need the change. clang refuses an operator that
        needs it, and its error has the place.  Only the place is read, not clang's words, which
        change from release to release.  An operator that clang refuses again has another mistake.
        """
        places = {
            rewritten_map.token_at(found.location.offset)[0]
            for found in unit.diagnostics
            if found.location.file is not None and found.location.file.name == _PARSED_FILE
        }
        return {place for place in places if text.is_conditional(place)}

    def _with_entries(self, text, kernels, entry):
        """Adds the kernels' entries; returns (text, the text to put after it).

        entry: a function of a kernel's number and the kernel; returns its entry.
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
        rewritten = _UNROLLED_TO_THE_LAST.sub("", rewritten)
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
    return tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(output)))


def _write(folder, name, text):
    """Returns the path of a new file in the folder."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    return path
