#!/usr/bin/env bash
# Builds, tests and times k2 with CUDA, with and without the series.
#
#   run.sh [build | suite | tests | compare]...   default: all but tests, in this order
#   W=FOLDER                                 where to build; default ./work
#   JOBS=N                                   compilers at once; default all cores
#   TREES="series base"                      what to build; `suite` and `tests` need only series
#
# `tests` builds and runs k2's C++ tests, with the series.  They need the source of GoogleTest,
# which `prepare` copies where Debian's package googletest is installed.
#
# Needs nvcc, torch for CUDA, pybind11, cmake, ninja and pytest, but no network.
# Another run continues the builds where they ended.  Exit status: 1 if a build or a
# test fails, or if an operation is more than 3% slower with the series.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
W=${W:-$here/work}
JOBS=${JOBS:-$(nproc)}
TREES=${TREES:-series base}
python=$(command -v python3)
[ $# -gt 0 ] || set -- build suite compare

# Some wheels of torch contain their own iostreams, which make k2 crash, with or
# without the series.  So the programs load the system's libstdc++ first.
preload=$(ls /usr/lib/*-linux-gnu/libstdc++.so.6 2>/dev/null | head -1)

# with TREE COMMAND...: runs a command with the k2 of a tree
with() {
  local tree=$1; shift
  PYTHONPATH="$W/$tree/k2/python:$W/build-$tree/lib:$here" \
    LD_PRELOAD=$preload "$@"
}

build_one() {
  local tree=$1
  if [ ! -d "$W/$tree" ]; then
    mkdir -p "$W/$tree.part" "$W/moderngpu"
    tar -C "$W/$tree.part" -xzf "$here/$tree.tgz"
    tar -C "$W/moderngpu" -xzf "$here/moderngpu.tgz"
    mv "$W/$tree.part" "$W/$tree"
  fi
  local tests=OFF
  [ ! -d "$here/googletest" ] || [ $tree != series ] || tests=ON
  if [ ! -f "$W/build-$tree/build.ninja" ]; then
    cmake -S "$W/$tree" -B "$W/build-$tree" -G Ninja \
      -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=17 \
      -DCMAKE_PROJECT_k2_INCLUDE="$here/include.cmake" \
      -DPYTHON_EXECUTABLE="$python" \
      -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" \
      -DFETCHCONTENT_SOURCE_DIR_MODERNGPU="$W/moderngpu" \
      -DK2_WITH_CUDA=ON -DK2_ENABLE_TESTS=$tests -DK2_ENABLE_BENCHMARK=OFF \
      -DCMAKE_CXX_FLAGS=-w "-DCMAKE_CUDA_FLAGS=-w -Xcompiler -w" \
      > "$W/$tree-configure.log" 2>&1 ||
      { tail -20 "$W/$tree-configure.log"; return 1; }
  fi
  ninja -C "$W/build-$tree" -j "$JOBS" -k 0 _k2 > "$W/$tree-build.log" 2>&1 ||
    { grep -E 'error|FAILED' "$W/$tree-build.log" | head -40; return 1; }
  echo "$tree: built"
}

build() {
  mkdir -p "$W"
  local failed=0
  for tree in $TREES; do build_one $tree || failed=1; done
  return $failed
}

# k2's own tests, on the CPU and on CUDA, one process for each file.
suite() {
  rm -rf "$W/suite"; mkdir -p "$W/suite"
  export -f with; export W here preload
  (cd "$W/series/k2/python/tests" && ls *_test.py) | xargs -P 8 -I{} bash -c '
    cd "$W/series/k2/python/tests" && with series timeout 300 python3 \
      -X faulthandler -m pytest -q -p no:cacheprovider -p seed \
      --junit-xml "$W/suite/{}.xml" {} > "$W/suite/{}.log" 2>&1 ||
      { tail -3 "$W/suite/{}.log" >&2; touch "$W/suite/{}.failed"; }'
  with series "$python" - "$W/suite" <<'X' && [ -z "$(ls "$W"/suite/*.failed 2>/dev/null)" ]
import pathlib, sys, torch, k2, xml.etree.ElementTree as tree
counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
for path in pathlib.Path(sys.argv[1]).glob("*.xml"):
    for one in tree.parse(path).getroot().iter("testsuite"):
        for name in counts:
            counts[name] += int(one.get(name))
device = torch.cuda.get_device_name()
print(f"suite on {device}, torch {torch.__version__}: {counts}")
sys.exit(counts["failures"] + counts["errors"] > 0 or not counts["tests"])
X
}

# k2's C++ tests of the code that nvcc compiles, four programs at once.
tests() {
  local names
  names=$(ninja -C "$W/build-series" -t targets all | grep -oE '^cu_[a-z_0-9]+_test' | sort -u)
  [ -n "$names" ] || { echo "there are no C++ tests: prepare found no GoogleTest"; return 1; }
  ninja -C "$W/build-series" -j "$JOBS" -k 0 $names > "$W/tests-build.log" 2>&1 ||
    { grep -E 'error|FAILED' "$W/tests-build.log" | head -40; return 1; }
  rm -rf "$W/tests"; mkdir -p "$W/tests"
  export W preload
  echo "$names" | xargs -P 4 -I{} bash -c '
    cd "$W/tests" && LD_PRELOAD=$preload timeout 300 "$W/build-series/bin/{}" > {}.log 2>&1 ||
      { grep -E "FAILED|Check failed|error" {}.log | head -5 >&2; touch {}.failed; }'
  echo "C++ tests: $(cat "$W"/tests/*.log | grep -c "^\[       OK") passed," \
    "$(cat "$W"/tests/*.log | grep -c "^\[  SKIPPED .*ms)") skipped;" \
    "programs: $(echo "$names" | wc -l), failed: $(cd "$W/tests"; ls *.failed 2>/dev/null | xargs)"
  [ -z "$(ls "$W"/tests/*.failed 2>/dev/null)" ]
}

compare() { "$python" "$here/compare.py" --root "$W" --preload "$preload"; }

status=0
for step in "$@"; do "$step" || { echo "failed: $step"; status=1; }; done
exit $status
