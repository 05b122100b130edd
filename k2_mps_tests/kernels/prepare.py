"""Makes a folder in which runner.py can run the checks without this package."""

import json
import shutil

import numpy as np

from k2_mps_tests.kernels import runner, sources

# The oldest architecture that the PTX runs on.
GPU = "sm_80"


def prepare(folder, libdevice):
    """Fills a folder with PTX, inputs, expected outputs and run.py, a copy of runner.py.

    Args:
      folder: the Path of the folder, which is made if it does not exist.
      libdevice: the Path of CUDA's libdevice.10.bc.
    Returns:
      The number of cases.
    Raises:
      LookupError: a file or a kernel has no check; or an argument of a kernel is in threadgroup
        memory; or the arguments of a kernel and of its case differ.
    """
    from mps_emulator.replay import driver  # on Linux only

    folder.mkdir(parents=True, exist_ok=True)
    manifest = []
    for name in sources.names():
        ptx = name + ".ptx"
        kernels = sources.compile_to_ptx(name, folder / ptx, libdevice, GPU)
        cases = sources.cases(name)
        sources.require_all(name, cases, [kernel["name"] for kernel in kernels])
        _require_buffers(kernels)
        by_name = {kernel["name"]: kernel for kernel in kernels}
        entries = [
            _entry(case, by_name[case.kernel], folder / f"{name}_{number}.npz")
            for number, case in enumerate(cases)
        ]
        manifest.append({"ptx": ptx, "cases": entries})
    (folder / "cases.json").write_text(json.dumps(manifest))
    for module, name in ((runner, "run"), (driver, "driver")):
        shutil.copyfile(module.__file__, folder / f"{name}.py")
    return sum(len(file["cases"]) for file in manifest)


def _require_buffers(kernels):
    """Raises LookupError if an argument of a kernel is in threadgroup memory."""
    for kernel in kernels:
        if any(kind != "buffer" for kind, _ in kernel["arguments"]):
            raise LookupError(
                "{} takes an argument in threadgroup memory, which "
                "torch.mps.compile_shader() cannot pass: declare the memory as "
                "a variable in the kernel".format(kernel["name"])
            )


def _entry(case, kernel, file):
    """Writes the arrays of a case; returns what run.py must know of the case.

    Args:
      kernel: the case's kernel, as sources.compile_to_ptx() describes it.
      file: the Path of the file for the arrays.
    """
    np.savez_compressed(file, **_arrays(case))
    numbers = [number for _, number in kernel["arguments"]]
    return {
        "name": case.name,
        "kernel": kernel["entry"],
        "kernel_name": case.kernel,
        "launches": arguments_of_launches(case, numbers),
        "threads": case.threads,
        "buffers": list(case.all_buffers()),
        "file": file.name,
    }


def arguments_of_launches(case, numbers):
    """Returns [(threadgroups, names)], a pair for each launch of a case.

    `names` has the name of the buffer for each number of `numbers`, in this order.

    Args:
      numbers: the numbers of the kernel's arguments, in the order of the kernel's entry.
    Raises:
      LookupError: the case has buffers for other arguments than `numbers`.
    """
    for _, names in case.launches():
        if set(names) != set(numbers):
            raise LookupError(
                f"the case '{case.name}' of {case.kernel} gives the arguments {sorted(names)}, "
                f"but the kernel takes {sorted(numbers)}"
            )
    return [(groups, [names[number] for number in numbers]) for groups, names in case.launches()]


def _arrays(case):
    arrays = {}
    for index, (content, expected, tolerance) in enumerate(case.all_buffers().values()):
        arrays[f"content_{index}"] = content
        if expected is not None:
            arrays[f"expected_{index}"] = expected
            arrays[f"tolerance_{index}"] = np.asarray(tolerance)
    return arrays
