# Every target makes the environment .venv from nothing when it is missing or older than pyproject.toml.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.stamp
RUN := $(VENV)/bin
OUT ?= out

.PHONY: demo test lint bench format p4 clean

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, this is " + sys.version)'
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python has no venv: install it (on Debian: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(RUN)/echelon run topologies/scenarios/fig2.yaml --target softswitch --out $(OUT)/fig2

test: $(STAMP)
	$(RUN)/pytest -n auto --dist loadgroup

lint: $(STAMP)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

bench: $(STAMP)
	$(RUN)/python -m tests.bench

format: $(STAMP)
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

# Recompile the P4 programs (needs p4c-bm2-ss on the PATH) and record which sources the output was made from.
p4: $(STAMP)
	cd p4src/v1model && p4c-bm2-ss --std p4-16 --arch v1model -o ../build/v1model/echelon.json \
		--p4runtime-files ../build/v1model/echelon.p4info.txtpb echelon.p4
	$(RUN)/python -c 'from pathlib import Path; from echelon.p4program import source_digest; \
		Path("p4src/build/v1model/SOURCE.sha256").write_text(source_digest(Path("p4src")) + "\n")'

clean:
	rm -rf $(VENV) $(OUT) .mypy_cache .ruff_cache .pytest_cache .hypothesis
