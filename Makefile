# Most targets run one k2mps command; `.venv/bin/k2mps --help` lists all commands.  make starts the
# command without a shell.  If there were a shell, a SIGTERM to make would end the shell, but not the
# command.
#
#   K2=DIR             your own k2 checkout, used in place
#   TORCH=VERSION      another torch that upstream.toml supports
#   SUITE="NAME ..."   the suites that `make test` runs; default all
#   REPORT=--quick     a short `make mac-report`; REPORT=--help lists all options
#   PYTHON=PROGRAM     the Python of .venv

K2 ?=
export K2

# The first Python that is new enough.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 \
  python3.10; do $$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
  2>/dev/null && echo $$python && break; done)

k2mps := .venv/bin/k2mps
torch = $(if $(TORCH),--torch $(TORCH))

.PHONY: build test doctor mac-report status apply export clean

build: $(k2mps)
	@$(k2mps) build --else-train $(torch)

test: $(k2mps)
	$(k2mps) test $(torch) $(SUITE)

doctor: $(k2mps)
	$(k2mps) doctor

# The program makes .venv itself, because it also reports if this fails.
mac-report:
	@$(or $(PYTHON),$(error Python 3.10 or newer is needed)) -m k2_mps_tests.report $(torch) \
	  $(REPORT)

status: $(k2mps)
	$(k2mps) status

apply: $(k2mps)
	$(k2mps) apply

export: $(k2mps)
	$(k2mps) export

# git does not delete the clones and worktrees of k2 in build/, which may contain your work, unless
# their folder .git is damaged.
clean:
	git clean -fdX build

# Some tests use this Makefile in a folder without tools/, hence $(wildcard).
$(k2mps): pyproject.toml $(wildcard tools/bin/k2mps)
	$(or $(PYTHON),$(error Python 3.10 or newer is needed)) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@
