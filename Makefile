# Each target is one k2mps command; `.venv/bin/k2mps --help` tells the rest.
# K2=DIR or K2=URL uses your own k2 checkout, TORCH=VERSION another torch.

K2 ?=
TORCH ?=
PYTHON ?= python3
export K2

k2mps := .venv/bin/k2mps
torch := $(if $(TORCH),--torch $(TORCH))

.PHONY: build test doctor status apply export clean

build: $(k2mps)
	$(k2mps) build $(torch)

test: $(k2mps)
	$(k2mps) test $(torch) $(SUITE)

doctor: $(k2mps)
	$(k2mps) doctor $(torch)

status: $(k2mps)
	$(k2mps) status

apply: $(k2mps)
	$(k2mps) apply

export: $(k2mps)
	$(k2mps) export

clean: $(k2mps)
	$(k2mps) clean

$(k2mps): pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@
