"""The style check of a commit reports only findings in lines that the commit changes."""

from k2mps.stack.checkout import Checkout

from k2_mps_tests.commits import style
from k2_mps_tests.tooling.support import commit, git

LONG = "// " + "long " * 20 + "\n"
HEADER = "// Copyright 2026\n#ifndef K2_A_H_\n#define K2_A_H_\n{}#endif  // K2_A_H_\n"


def test_only_findings_in_lines_of_the_commit_are_reported(tmp_path):
    git(tmp_path, "init", "--quiet")
    commit(
        tmp_path,
        "theirs",
        {
            ".flake8": "[flake8]\nmax-line-length = 80\n",
            "k2/a.h": HEADER.format(LONG),
            "a.py": "import os\n",
        },
    )
    new = commit(
        tmp_path,
        "ours",
        {
            "k2/a.h": HEADER.format(LONG + "int a = (int)1.0;\n"),
            "a.py": "import os\nimport sys\n",
            "b.cu": "// Copyright 2026\n__global__ void F() {  // __host__ __device__ (\n}\n"
            + LONG,
            "c.metal": LONG,
        },
    )
    found = list(style.findings(Checkout(tmp_path), f"{new}~", new))
    assert {one.split(": ")[0] for one in found} == {"a.py:2", "b.cu:4", "c.metal:1", "k2/a.h:5"}
    more = {".clang-format": "BasedOnStyle: Google\n", "k2/b.h": HEADER.format("int x;\n")}
    last = commit(tmp_path, "more", {**more, "k2/c.h": HEADER.format("int  x;\n")})
    made = list(style.findings(Checkout(tmp_path), new, last, ["clang-format"]))
    assert made == ["k2/c.h:4: warning: code should be clang-formatted [-Wclang-format-violations]"]
    text = "\n".join(found)
    assert "static_cast<int>" in text
    assert "F401 'sys' imported but unused" in text
