"""The names of torch that the rules of rules.py know, and questions about expressions.

The names stand in groups, by the rules that use them: functions to replace, devices, questions for
CUDA, and notes.
"""

import ast
import re

from .syntax import dotted, is_cuda, keyword

# ---- functions that another function replaces

_SAME_NAME = (
    "is_available",
    "device_count",
    "current_device",
    "get_device_name",
    "set_device",
    "device",
    "synchronize",
    "empty_cache",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "reset_peak_memory_stats",
    "is_bf16_supported",
    "manual_seed",
    "manual_seed_all",
    "get_rng_state",
    "get_rng_state_all",
    "set_rng_state",
    "set_rng_state_all",
)
_AMP = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
# {function of torch: function of k2_mac.gpu with the same arguments}
REPLACED = {
    **{f"torch.cuda.{name}": name for name in _SAME_NAME},
    **{f"torch.cuda.amp.{name}": name for name in _AMP},
    "torch.cuda.amp.autocast_mode.autocast": "autocast",
    "torch.cuda.amp.grad_scaler.GradScaler": "GradScaler",
    "torch.get_autocast_gpu_dtype": "get_autocast_dtype",
    "torch.distributed.is_nccl_available": "is_nccl_available",
    "torch.multiprocessing.spawn": "spawn",
}
# The same for functions that mean CUDA only if the call names no device, see means_cuda().
CUDA_BY_DEFAULT = {
    "torch.is_autocast_enabled": "is_autocast_enabled",
    "torch.amp.GradScaler": "GradScaler",
    "torch.GradScaler": "GradScaler",
}

# ---- arguments that are devices

# The first argument of these functions is a device or its type.
DEVICE_FIRST = (
    "torch.autocast",
    "torch.amp.autocast",
    "torch.amp.autocast_mode.autocast",
    "torch.amp.GradScaler",
    "torch.GradScaler",
    "torch.is_autocast_enabled",
    "torch.Generator",
    "torch.get_autocast_dtype",
    "torch.set_default_device",
    "torch.amp.is_autocast_available",
)
# These arguments, in calls of syntax.LIBRARIES, may be variables that name CUDA.
DEVICE_KEYWORDS = ("device", "device_type")
# A variable or an argument with such a name has a device.
_DEVICE_NAMES = re.compile(r"(?:\w*_)?device|device_type|map_location")
# An expression with one of these attributes is a tensor, so its attribute `device` is no text.
TENSOR_ATTRIBUTES = ("shape", "size", "dtype", "ndim", "dim")

# ---- names that keep a question for CUDA off

# These are None without CUDA.  Code that takes one for a text needs CUDA, see used_as_texts().
CUDA_VERSIONS = ("torch.version.cuda", "torch.version.hip")
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
# Functions that read a version from a text.
_READERS = ("float", "int", "parse", "LooseVersion", "StrictVersion", "TorchVersion", "Version")

# ---- names that give a note

# Some calls with one of these names also change.
FLOAT64 = ("torch.double", "torch.float64")
TORCH_CTC = ("torch.nn.CTCLoss", "torch.nn.functional.ctc_loss")

# {kind of a note: what the kind means}
NOTES = {
    "cuda": "needs CUDA and stays",
    "off": "torch.cuda.is_available() stays False, because the code after it needs CUDA",
    "float64": "float64, which mps lacks; tensors on mps become float32",
    "ctc": "CTC of torch, which k2 computes on mps before torch 2.14",
    "kaldifeat": "computes features by kaldifeat, so stays on the CPU",
    "deep": "stays, because its expressions are nested too deeply",
}

# ---- programs that no rule changes

# The last word of each name is in every program that uses the name.  The words before may not be: a
# program may give a module another name.
_LAST_WORDS = {
    name.rpartition(".")[2]
    for name in (*REPLACED, *CUDA_BY_DEFAULT, *DEVICE_FIRST, *FLOAT64, *TORCH_CTC)
    if not name.startswith("torch.cuda.")
}
# A program without a match needs no change and no note.
MAY_MATTER = re.compile("|".join(["cuda", "device", "(?i:kaldifeat)", *sorted(_LAST_WORDS)]))


def may_convert_float64(call: ast.Call, name: str) -> bool:
    """Whether a call may make a tensor of an array of numpy, which is float64 by default."""
    return bool(
        name in ("torch.tensor", "torch.as_tensor")
        and keyword(call, "device")
        and not keyword(call, "dtype")
        and call.args
        and isinstance(call.args[0], (ast.Name, ast.Attribute, ast.Call))
    )


def used_as_texts(node: ast.AST) -> list[ast.AST]:
    """Returns the parts of an expression that must not be None, if they are texts elsewhere."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return [node.value]
    if isinstance(node, ast.Compare) and any(isinstance(op, _ORDERS) for op in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in _READERS:
        return node.args
    return []


def means_cuda(call: ast.Call, name: str) -> bool:
    """Whether a call means CUDA because it names no device."""
    has_device = call.args or keyword(call, "device") or keyword(call, "device_type")
    return name in CUDA_BY_DEFAULT and not has_device


def names_device(name: str) -> bool:
    """Whether a variable, an attribute or an argument with this name has a device."""
    return bool(_DEVICE_NAMES.fullmatch(name.rpartition(".")[2]))


def mps_for(cuda: str) -> str:
    """Returns "mps" for "cuda", and "mps:0" for "cuda:N"."""
    return "mps:0" if ":" in cuda else "mps"


def constants(node: ast.Tuple | ast.List | ast.Set) -> list[object]:
    """Returns the values of the elements that are constants."""
    return [element.value for element in node.elts if isinstance(element, ast.Constant)]


def hides_its_device(call: ast.Call) -> bool:
    """Whether the device of a call may be in `*args` or `**kwargs`."""
    if any(isinstance(value, ast.Starred) for value in call.args[:1]):
        return True
    shows = call.args or any(names_device(argument.arg or "") for argument in call.keywords)
    return not shows and any(argument.arg is None for argument in call.keywords)


def is_other_device(call: ast.Call) -> bool:
    """Whether a call `torch.device("cpu")` names a device that is not of CUDA."""
    arguments = [*call.args, *(argument.value for argument in call.keywords)]
    first = arguments[0] if arguments else None
    is_text = isinstance(first, ast.Constant) and isinstance(first.value, str)
    return is_text and not is_cuda(first)


def makes_extractor(node: ast.AST) -> bool:
    """Whether a node is a call of lhotse's KaldifeatFbank or a similar class."""
    name = dotted(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
    return bool(re.fullmatch(r"Kaldifeat\w+", name))
