"""Tests the built-in parameters of threads in grids of several shapes."""

import itertools

import numpy as np
import pytest


def reference(grid, threadgroup):
    """Returns the expected values of all threads, {position in the grid: {attribute: value}}.

    Args:
      grid, threadgroup: sizes in threads, for x, y and z.
    """
    counts = [-(-g // t) for g, t in zip(grid, threadgroup)]
    found = {}
    for group in itertools.product(*(range(n) for n in counts)):
        size = [min(t, g - p * t) for g, t, p in zip(grid, threadgroup, group)]
        volume = int(np.prod(size))
        full = int(np.prod(threadgroup))
        for local in itertools.product(*(range(n) for n in size)):
            index = local[0] + size[0] * (local[1] + size[1] * local[2])
            position = tuple(p * t + i for p, t, i in zip(group, threadgroup, local))
            found[position] = {
                "thread_position_in_grid": position,
                "thread_position_in_threadgroup": local,
                "threadgroup_position_in_grid": group,
                "threads_per_threadgroup": tuple(size),
                "dispatch_threads_per_threadgroup": tuple(threadgroup),
                "threads_per_grid": tuple(grid),
                "threadgroups_per_grid": tuple(counts),
                "thread_index_in_threadgroup": index,
                "thread_index_in_simdgroup": index % 32,
                "simdgroup_index_in_threadgroup": index // 32,
                "simdgroups_per_threadgroup": -(-volume // 32),
                "dispatch_simdgroups_per_threadgroup": -(-full // 32),
                "threads_per_simdgroup": 32,
                "thread_execution_width": 32,
            }
    return found


_VALUES = reference((1, 1, 1), (1, 1, 1))[0, 0, 0]
THREE = [name for name, value in _VALUES.items() if isinstance(value, tuple)]
ONE = [name for name in _VALUES if name not in THREE]

SHAPES = [
    ((1, 1, 1), (1, 1, 1)),
    ((64, 1, 1), (64, 1, 1)),
    ((100, 1, 1), (32, 1, 1)),
    ((7, 5, 1), (4, 2, 1)),
    ((3, 4, 5), (2, 3, 2)),
    ((1, 9, 2), (1, 4, 8)),
    ((33, 1, 2), (16, 2, 2)),
]

# {name: (type of the parameters, first statement of the kernel)}.  Metal allows both types.  If the
# kernel has a barrier, the executor runs the threads on fibers instead of in a loop.
BODIES = {
    "loop": ("uint", ""),
    "fibers": ("ushort", "  threadgroup_barrier(mem_flags::mem_none);\n"),
}


@pytest.mark.parametrize("how", BODIES)
@pytest.mark.parametrize("schedule_name", ["forward", "reverse", "random:3"])
@pytest.mark.parametrize("grid, threadgroup", SHAPES)
def test_values(metal, schedule, schedule_name, grid, threadgroup, how):
    schedule(schedule_name)
    scalar, barrier = BODIES[how]
    parameters = [f"{scalar}3 {name} [[{name}]]" for name in THREE] + [
        f"{scalar} {name} [[{name}]]" for name in ONE
    ]
    stores = [f"  *o++ = {n}.{c};" for n in THREE for c in "xyz"]
    stores += [f"  *o++ = {name};" for name in ONE]
    library = metal.compile(
        "kernel void k(device uint *out [[buffer(0)]],\n"
        + ",\n".join(parameters)
        + ") {\n"
        + barrier
        + "  uint3 p = uint3(thread_position_in_grid), g = uint3(threads_per_grid);\n"
        + f"  device uint *o = out + {len(stores)} * (p.x + g.x * (p.y + g.y * p.z));\n"
        + "\n".join(stores)
        + "\n}\n"
    )
    out = np.full(len(stores) * int(np.prod(grid)), 0xFFFFFFFF, np.uint32)
    library.run("k", [out], grid, threadgroup)
    rows = out.reshape(grid[2], grid[1], grid[0], len(stores))
    for position, values in reference(grid, threadgroup).items():
        expected = [v for name in THREE for v in values[name]]
        expected += [values[name] for name in ONE]
        row = rows[position[2], position[1], position[0]]
        assert row.tolist() == expected, position
