"""Compiles a .metal file for an NVIDIA GPU.

For a comparison with CUDA code on one GPU, from the file that the mps backend
has.  clang reads it as C++ for OpenCL, for which this module rewrites what
differs from Metal: the constructors of vectors, the name of a type, and the
parameters of kernels that Metal fills in.  What of the Metal Shading Language
our kernels do not use is not there.

Needs clang 19, and CUDA's libdevice (any version of CUDA 11 or later; PyPI's
nvidia-cuda-nvcc-cu12 has it too).
"""
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What Metal's built-in parameters are, of groups and grids of one dimension.
_BUILTINS = {
    'threadgroup_position_in_grid': '__nvvm_read_ptx_sreg_ctaid_x()',
    'thread_index_in_threadgroup': '__nvvm_read_ptx_sreg_tid_x()',
    'threads_per_threadgroup': '__nvvm_read_ptx_sreg_ntid_x()',
    'thread_index_in_simdgroup': 'LaneIndex()',
    'simdgroup_index_in_threadgroup': '(__nvvm_read_ptx_sreg_tid_x() / 32)',
    'simdgroups_per_threadgroup': '(__nvvm_read_ptx_sreg_ntid_x() / 32)',
}


class CompileError(Exception):
    """What the compiler said."""


@dataclass(frozen=True)
class Kernel:
    """An entry of the PTX.

    Attributes:
      name: the kernel's.
      num_buffers: it takes as many device pointers, in the order of
        [[buffer(i)]].
      max_threads: of a threadgroup, None if the source does not say.
    """
    name: str
    num_buffers: int
    max_threads: int | None


def compile_metal(source, include, libdevice, architecture='sm_90'):
    """Compiles a file of kernels.

    Args:
      source: Path of the .metal file.
      include: Path of the folder that #include "k2/..." are relative to.
      libdevice: Path of libdevice.10.bc.
      architecture: of the GPU.
    Returns:
      The PTX, a str, and a list of its Kernels.
    Raises:
      CompileError: with clang's message.
    """
    text = _clang(['-E', '-P', '-x', 'c++', '-nostdinc', '-I', str(include),
                   '-'],
                  source.read_text().replace('#include <metal_stdlib>', ''))
    text = re.sub(r'\b(float[24])\s*\(', r'make_\1(', text)
    text = re.sub(r'\batomic_uint\b', 'metal_atomic_uint', text)
    text, kernels = _rewrite_kernels(text, enumerators(text))
    target = ['-target', 'nvptx64-nvidia-cuda', '-Xclang', '-target-cpu',
              '-Xclang', architecture, '-Xclang', '-target-feature',
              '-Xclang', '+ptx80', '-Wno-everything', '-O3', '-S', '-o', '-',
              '-']
    ir = _clang(
        ['-x', 'clcpp', '-cl-std=clc++2021', '-cl-no-stdinc',
         '-cl-single-precision-constant',
         # Optional features of OpenCL that this target lacks are off.
         '-Xclang', '-cl-ext=-all,+__opencl_c_generic_address_space,'
         '+__opencl_c_program_scope_global_variables',
         '-Xclang', '-mlink-builtin-bitcode', '-Xclang', str(libdevice),
         # As Metal without fast math.
         '-ffp-contract=off', '-emit-llvm', '-Xclang', '-disable-llvm-passes',
         *target],
        '#include "%s"\nusing namespace metal;\n%s' % (
            HERE / 'metal_on_ptx.h', text))
    ptx = _clang(
        # Division is off by 2 ulp at most, as Metal's with fast math.
        ['-x', 'ir', '-mllvm', '-nvptx-prec-divf32=1', *target],
        ir)
    return _limit_threads(ptx, kernels), kernels


def _clang(arguments, text):
    done = subprocess.run(['clang++-19', *arguments], input=text, text=True,
                          capture_output=True)
    if done.returncode != 0:
        raise CompileError(done.stderr)
    return done.stdout


def enumerators(text):
    """Returns the values of enumerators that are given as expressions."""
    values = {}
    for body in re.findall(r'\benum\s*\w*\s*\{(.*?)\}', text, re.DOTALL):
        for name, value in re.findall(r'(\w+)\s*=\s*([^,]+)', body):
            try:
                values[name] = eval(value.replace('/', '//'), {}, dict(values))
            except NameError:
                pass
    return values


_KERNEL = re.compile(
    r'(?:\[\[\s*max_total_threads_per_threadgroup\((\w+)\)\s*\]\]\s*)?'
    r'\bkernel\s+void\s+(\w+)\s*\(')


def _rewrite_kernels(text, enumerators):
    """Returns the text with OpenCL's kernels, and a list of Kernels."""
    kernels = []
    while True:
        match = _KERNEL.search(text)
        if match is None:
            return text.replace('__kernel_done', 'kernel'), kernels
        end = _closing(text, match.end() - 1)
        parameters, locals_ = [], []
        for parameter in _split(text[match.end():end]):
            attribute, declaration, name = _parse_parameter(parameter)
            if attribute == 'thread_index_in_simdgroup':
                # Read anew wherever it is used.  See LaneIndex().
                locals_.append('#define %s (%s)' % (
                    name, _BUILTINS[attribute]))
            elif attribute in _BUILTINS:
                locals_.append('const %s = %s;' % (
                    declaration, _BUILTINS[attribute]))
            elif '&' in declaration:
                # `constant` there is read-only memory that any kernel may
                # be given, and a parameter is a pointer.
                parameters.append(declaration.replace('&', '*const p_'))
                locals_.append('%s = *p_%s;' % (declaration, name))
            else:
                parameters.append(declaration)
        if match[1] is None:
            most = None
        else:
            most = int(enumerators.get(match[1], match[1]))
        kernels.append(Kernel(match[2], len(parameters), most))
        body = text.index('{', end) + 1
        text = '%s__kernel_done void %s(%s) {\n%s\n%s' % (
            text[:match.start()], match[2], ', '.join(parameters),
            '\n'.join(locals_), text[body:])


def _parse_parameter(parameter):
    """Returns the attribute's name, the declaration without it, the name."""
    attribute = re.search(r'\[\[\s*(\w+)', parameter)
    declaration = re.sub(r'\[\[.*\]\]', '', parameter).strip()
    return (attribute[1] if attribute else None, declaration,
            re.search(r'(\w+)$', declaration)[1])


def _closing(text, position):
    """Returns where the parenthesis that opens at position is closed."""
    depth = 0
    while True:
        depth += {'(': 1, ')': -1}.get(text[position], 0)
        if depth == 0:
            return position
        position += 1


def _split(parameters):
    """Splits at the commas that are in no brackets."""
    parts, depth = [''], 0
    for character in parameters:
        depth += {'(': 1, '[': 1, ')': -1, ']': -1}.get(character, 0)
        if character == ',' and depth == 0:
            parts.append('')
        else:
            parts[-1] += character
    return parts


def _limit_threads(ptx, kernels):
    """Tells the assembler how many threads there will be, as Metal is told.

    Without it, it may use more registers than so many threads have.
    """
    for kernel in kernels:
        if kernel.max_threads is None:
            continue
        begin = ptx.index('.entry %s(' % kernel.name)
        end = _closing(ptx, ptx.index('(', begin)) + 1
        ptx = '%s\n.maxntid %d, 1, 1%s' % (
            ptx[:end], kernel.max_threads, ptx[end:])
    return ptx
