"""The threads' built-in parameters, in grids of all shapes."""

import itertools

import numpy as np
import pytest
from metal import uint


def reference(grid, threadgroup):
    """The expected values, {position in grid: {attribute: value}}."""
    counts = [-(-g // t) for g, t in zip(grid, threadgroup)]
    places = {}
    for group in itertools.product(*(range(n) for n in counts)):
        size = [min(t, g - p * t) for g, t, p in zip(grid, threadgroup, group)]
        volume = int(np.prod(size))
        full = int(np.prod(threadgroup))
        for local in itertools.product(*(range(n) for n in size)):
            index = local[0] + size[0] * (local[1] + size[1] * local[2])
            position = tuple(p * t + i for p, t, i in zip(group, threadgroup, local))
            places[position] = {
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
    return places


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

# With a barrier the executor runs the threads on fibers instead of in a loop.
BODIES = {"loop": "", "fibers": "  threadgroup_barrier(mem_flags::mem_none);\n"}


@pytest.mark.parametrize("how", BODIES)
@pytest.mark.parametrize("schedule_name", ["forward", "reverse", "random:3"])
@pytest.mark.parametrize("grid, threadgroup", SHAPES)
def test_values(metal, schedule, schedule_name, grid, threadgroup, how):
    schedule(schedule_name)
    parameters = [f"uint3 {name} [[{name}]]" for name in THREE] + [
        f"uint {name} [[{name}]]" for name in ONE
    ]
    stores = [f"  *o++ = {n}.{c};" for n in THREE for c in "xyz"]
    stores += [f"  *o++ = {name};" for name in ONE]
    library = metal.compile(
        "kernel void k(device uint *out [[buffer(0)]],\n"
        + ",\n".join(parameters)
        + ") {\n"
        + BODIES[how]
        + "  uint3 p = thread_position_in_grid, g = threads_per_grid;\n"
        + f"  device uint *o = out + {len(stores)} * (p.x + g.x * (p.y + g.y * p.z));\n"
        + "\n".join(stores)
        + "\n}\n"
    )
    assert library.kernels["k"].needs_fibers == (how == "fibers")
    out = np.full(len(stores) * int(np.prod(grid)), 0xFFFFFFFF, np.uint32)
    library.run("k", [out], grid, threadgroup)
    rows = out.reshape(grid[2], grid[1], grid[0], len(stores))
    for position, values in reference(grid, threadgroup).items():
        expected = [v for name in THREE for v in values[name]]
        expected += [values[name] for name in ONE]
        row = rows[position[2], position[1], position[0]]
        assert row.tolist() == expected, position


def components_of(attribute):
    return (1, 2, 3) if attribute in THREE else (1,)


@pytest.fixture(scope="module")
def kernel_of_each_type(metal):
    """Kernels that store the value of an attribute of a type, like grid_size_ushort2."""
    text = ""
    for scalar in ("uint", "ushort"):
        for attribute in THREE + ONE:
            for components in components_of(attribute):
                name = scalar if components == 1 else scalar + str(components)
                values = ["v"] if components == 1 else [f"v.{c}" for c in "xyz"[:components]]
                stores = "".join(
                    f" out[{components} * i + {c}] = {value};" for c, value in enumerate(values)
                )
                # The thread's position comes from an atomic counter, because the types
                # of some attributes must match.
                text += (
                    f"kernel void {attribute}_{name}(device uint *out, device atomic_uint *next,"
                    f" {name} v [[{attribute}]]) {{\n"
                    "  uint i = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);"
                    f"{stores}\n}}\n"
                )
    return metal.compile(text)


@pytest.mark.parametrize("attribute", THREE + ONE)
@pytest.mark.parametrize("scalar", ["uint", "ushort"])
def test_types(kernel_of_each_type, attribute, scalar):
    """Every type that Metal allows gives the first components."""
    grid, threadgroup = (5, 3, 2), (2, 2, 2)
    places = reference(grid, threadgroup)
    for components in components_of(attribute):
        name = scalar if components == 1 else scalar + str(components)
        out = np.zeros(30 * components, np.uint32)
        kernel_of_each_type.run(f"{attribute}_{name}", [out, uint(0)], grid, threadgroup)
        expected = []
        for values in places.values():
            value = values[attribute]
            value = value if isinstance(value, tuple) else (value,)
            expected.append(value[:components])
        found = [tuple(row) for row in out.reshape(-1, components).tolist()]
        assert sorted(found) == sorted(expected)


def test_nothing_runs_in_an_empty_grid(metal):
    library = metal.compile("kernel void k(device uint *out) { out[0] = 1; }\n")
    out = uint(0)
    library.run("k", [out], (0, 1, 1), 1)
    assert out[0] == 0
