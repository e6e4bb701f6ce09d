# Every target makes the environment .venv from nothing when it is missing or older than pyproject.toml.
PYTHON ?= python3
VENV := .venv
# What runs scenarios, and what tests need besides.
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.stamp
RUN := $(VENV)/bin
OUT ?= out
TARGET ?= softswitch
TESTS ?=

.PHONY: demo demo-mininet test test-fast test-long test-properties test-quiet ptf lint bench bench-switch soak format p4 p4-tofino proto clean

$(RUNS): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, this is " + sys.version)'
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python has no venv: install it (on Debian: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plot]'
	touch $@

$(STAMP): $(RUNS)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(RUNS)
	$(RUN)/echelon run topologies/scenarios/fig2.yaml --target softswitch --out $(OUT)/fig2

# Two training jobs and web-search traffic between Mininet's hosts, in real time: first under fifo, then under echelon. Root;
# TARGET is softswitch or bmv2. Says what to install where something is missing (docs/testbed.md).
demo-mininet: $(RUNS)
	$(RUN)/echelon run topologies/scenarios/demo_leaf_spine.yaml --fabric mininet --target $(TARGET) --out $(OUT)/demo-mininet-$(TARGET)

test: $(STAMP)
	$(RUN)/pytest -n auto --dist loadgroup

# The layers without sockets and processes, for the edit loop: a minute.
FAST := tests/echelon/files tests/echelon/jobs tests/echelon/fluid tests/echelon/policies tests/echelon/lowering \
	tests/echelon/telemetry tests/echelon/control tests/softswitch/core tests/softswitch/tm
test-fast: $(STAMP)
	$(RUN)/pytest -n auto --dist loadgroup -m 'not io and not long and not quiet' $(FAST)

# What `make test` leaves out because it takes minutes, and property tests again with all their examples.
test-long: $(STAMP)
	$(RUN)/pytest -n auto --dist loadgroup -m long

# Property tests with all their examples; `make test` draws a quarter of them.
test-properties: $(STAMP)
	ECHELON_EXAMPLES=all $(RUN)/pytest -n auto --dist loadgroup -m 'hypothesis and not long and not quiet'

# What measures jobs and traffic on real hosts, in real time: root, and a machine with nothing else to do.
test-quiet: $(STAMP)
	$(RUN)/pytest -s -m quiet

# Tests of the P4 program on a running switch (docs/ptf.md): TARGET is softswitch, bmv2 or tofino, TESTS are modules or
# module.Class.
ptf: $(STAMP)
	$(RUN)/python ptf/run.py --target $(TARGET) --out $(OUT)/ptf $(TESTS)

lint: $(STAMP)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/lint-imports
	$(RUN)/mypy
	MYPYPATH=ptf $(RUN)/mypy ptf/run.py ptf/tests/*.py ptf/platforms/unix.py

bench: $(STAMP)
	$(RUN)/python -m tests.bench

# softswitch beside BMv2 (where simple_switch_grpc is installed): lossless rates, entries per second. Needs root.
bench-switch: $(STAMP)
	$(RUN)/python -m tests.bench.switch

# The long runs: random events of the controller, random packets and messages, and a day of virtual time.
soak: $(STAMP)
	$(RUN)/python -m tests.soak control --sequences 10000 --events 50
	$(RUN)/python -m tests.soak packets
	$(RUN)/python -m tests.soak p4runtime
	$(RUN)/python -m tests.soak day

format: $(STAMP)
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

# Recompile the P4 programs (needs p4c-bm2-ss on the PATH) and record which sources the output was made from.
p4: $(STAMP)
	cd p4src/v1model && p4c-bm2-ss --std p4-16 --arch v1model -o ../build/v1model/echelon.json \
		--p4runtime-files ../build/v1model/echelon.p4info.txtpb echelon.p4
	$(RUN)/python -c 'from pathlib import Path; from echelon.p4program import source_digest; \
		Path("p4src/build/v1model/SOURCE.sha256").write_text(source_digest(Path("p4src")) + "\n")'

# Compile the TNA program for Tofino 1 and 2 and record which sources the output was made from. P4C_TOFINO is the driver of
# a p4c that was built with its Tofino back end (-DENABLE_TOFINO=ON).
P4C_TOFINO ?= p4c
TNA_OUT := $(OUT)/p4
p4-tofino: $(STAMP)
	@command -v $(P4C_TOFINO) >/dev/null || { echo "$(P4C_TOFINO) is not installed: build p4c with -DENABLE_TOFINO=ON, and" \
		"name its driver: make p4-tofino P4C_TOFINO=PATH"; exit 1; }
	for pair in tofino-tna tofino2-t2na; do \
		target=$${pair%-*} arch=$${pair#*-} && mkdir -p p4src/build/$$arch $(TNA_OUT) && \
		$(P4C_TOFINO) --target $$target --arch $$arch --std p4-16 -g -o $(TNA_OUT)/$$arch \
			--bf-rt-schema p4src/build/$$arch/bf-rt.json \
			--p4runtime-files p4src/build/$$arch/echelon.p4info.txtpb p4src/tna/echelon.p4 && \
		cp $(TNA_OUT)/$$arch/pipe/echelon.bfa $(TNA_OUT)/$$arch/pipe/context.json p4src/build/$$arch/ && \
		$(RUN)/python -c 'from pathlib import Path; from echelon.p4program import source_digest; \
			Path("p4src/build/'$$arch'/SOURCE.sha256").write_text(source_digest(Path("p4src"), "tna") + "\n")' || exit 1; \
	done

# Regenerate the messages of BF Runtime (needs grpcio-tools and googleapis-common-protos in the environment).
proto: $(STAMP)
	cd bfrt_proto && ../$(RUN)/python -m grpc_tools.protoc -I. -I$$(../$(RUN)/python -c 'import google.rpc; \
		print(google.rpc.__path__[0].removesuffix("/google/rpc"))') --python_out=. --pyi_out=. bfruntime.proto
	sed -i 's/^from google.rpc import/from finsy.proto.google.rpc import/' bfrt_proto/bfruntime_pb2.py bfrt_proto/bfruntime_pb2.pyi

clean:
	rm -rf $(VENV) $(OUT) .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
