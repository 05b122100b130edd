"""Rewriting a recipe for CUDA to calls of k2.mps.gpu.

Each known call shape of CUDA becomes the same call of `k2.mps.gpu`, which has the same effect with
CUDA.  Comments and strings stay as they are.  A second rewrite changes nothing.

A program that uses kaldifeat keeps its choice of CUDA or the CPU: nobody has run kaldifeat on mps.
"""

import io
import re
import tokenize

_IMPORT = "from k2.mps import gpu"

_MEMORY = "max_memory_allocated|memory_allocated|memory_reserved|reset_peak_memory_stats"
_MIXED = "autocast|GradScaler|custom_fwd|custom_bwd"
_NAME = r"""["']cuda["']"""
_CUDA = r"""torch\.device\(\s*["']cuda(?::0)?["']\s*(?:,\s*(?P<index>[\w.]+)\s*)?\)"""

# The shapes of `_DEVICE` and `_CALLS` need an import of `gpu`.
_DEVICE = (
    # An `if` that only chooses the device.
    (
        rf"if torch\.cuda\.is_available\(\):(?P<between>\s+(?:[\w.]+ = )){_CUDA}",
        r"if gpu.is_available():\g<between>gpu.pick_device(\g<index>)",
    ),
    (
        rf"torch\.device\(\s*{_NAME} if torch\.cuda\.is_available\(\) else [\"']cpu[\"']\s*\)",
        "gpu.pick_device()",
    ),
)
_CALLS = (
    (rf"torch\.cuda\.amp\.({_MIXED})\b", r"gpu.\1"),
    (rf"torch\.(?:amp\.)?autocast\(\s*(?:device_type=)?{_NAME}(?:,\s*)?", "gpu.autocast("),
    (rf"torch\.amp\.GradScaler\(\s*(?:device=)?{_NAME}(?:,\s*)?", "gpu.GradScaler("),
    (rf"def create_grad_scaler\(device={_NAME}", "def create_grad_scaler(device=gpu.device_type()"),
    (
        rf"def torch_autocast\(device_type={_NAME}",
        "def torch_autocast(device_type=gpu.device_type()",
    ),
    (r"torch\.is_autocast_enabled\(\)", "gpu.is_autocast_enabled()"),
    (r"torch\.get_autocast_gpu_dtype\(\)", "gpu.get_autocast_dtype()"),
    # torch has no kernel for CTC on mps.
    (r"\b(?:torch\.nn\.functional|F)\.ctc_loss\(", "gpu.ctc_loss("),
    (rf"torch\.cuda\.({_MEMORY}|empty_cache|synchronize|is_bf16_supported)\b", r"gpu.\1"),
)

# An import by itself.
_FROM_AMP = (
    r"from torch\.cuda\.amp import "
    rf"(?P<names>\(?\s*(?:{_MIXED})(?:,\s*(?:{_MIXED}))*,?\s*\)?)(?=\s*$)",
    r"from k2.mps.gpu import \g<names>",
)


def rewrite(source: str) -> str:
    """The text of a program with the known call shapes rewritten.

    Raises:
      ValueError: the text is no Python, or has a name `gpu` already.
    """
    ans, found = source, 0
    device = () if "kaldifeat" in source.lower() else _DEVICE
    for pattern, replacement in (*device, *_CALLS):
        ans, count = _substitute(pattern, replacement, ans)
        found += count
    if found and _IMPORT not in source:
        if any(token.string == "gpu" for token in _names(source)):
            raise ValueError("it has a name `gpu` of its own")
        ans = _with_import(ans)
    return _substitute(*_FROM_AMP, ans)[0]


def _substitute(
    pattern: str, replacement: str, text: str, most: int | None = None
) -> tuple[str, int]:
    """As re.subn, but in code only, and `most` times."""
    found = list(re.finditer(pattern, text, re.MULTILINE))
    hidden = _hidden(text) if found else []
    shown = [
        match for match in found if not any(begin <= match.start() < end for begin, end in hidden)
    ][:most]
    for match in reversed(shown):
        text = text[: match.start()] + match.expand(replacement) + text[match.end() :]
    return text, len(shown)


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(text, newline="").readline))
    except (tokenize.TokenError, SyntaxError) as error:
        raise ValueError(f"it is no Python: {error}") from error


def _hidden(text: str) -> list[tuple[int, int]]:
    """The ranges of comments, and of strings that are no f-strings."""
    begins = [0]
    for line in io.StringIO(text, newline=""):
        begins.append(begins[-1] + len(line))
    places = []
    for token in _tokens(text):
        prefix = token.string.split("'")[0].split('"')[0].lower()
        plain = token.type == tokenize.STRING and "f" not in prefix
        if plain or token.type == tokenize.COMMENT:
            (line, column), (last_line, last_column) = token.start, token.end
            places.append((begins[line - 1] + column, begins[last_line - 1] + last_column))
    return places


def _names(text: str) -> list[tokenize.TokenInfo]:
    """The names in a program, without attributes."""
    tokens = _tokens(text)
    return [
        token
        for before, token in zip([None, *tokens], tokens)
        if token.type == tokenize.NAME and not (before and before.string == ".")
    ]


def _with_import(text: str) -> str:
    """Imports `gpu` behind the first import of torch, or of anything."""
    end = "\r\n" if "\r\n" in text else "\n"
    for pattern in (r"^import torch(?=\r?$)", r"^import [\w.]+(?: as \w+)?(?=\r?$)"):
        found, count = _substitute(pattern, rf"\g<0>{end}{_IMPORT}", text, 1)
        if count:
            return found
    raise ValueError("it imports nothing")
