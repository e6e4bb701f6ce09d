# Every target makes the environment .venv from nothing when it is missing or older than pyproject.toml.
PYTHON ?= python3
VENV := .venv
# What runs scenarios; the same with pages and pictures; and what tests need besides.
RUNS := $(VENV)/.runs
HOSTS := $(VENV)/.hosts
STAMP := $(VENV)/.stamp
RUN := $(VENV)/bin
# pip takes the core from here for all of them only if it comes first.
PLUG_INS := importers torch etcd web tofino tofino_model aggregation topoopt site
# Errors of pip are shown, and nothing else.
QUIETLY := -qq --disable-pip-version-check
# `make lock UPGRADE=--upgrade` takes the newest versions; without it, those of the lock files stay where they fit.
UPGRADE ?=
OUT ?= out
TARGET ?= softswitch
TESTS ?=
PROGRAM ?=

.PHONY: demo demo-aggregation demo-mininet demo-torch docs test test-all test-fast test-long test-properties test-quiet ptf lint house hosts wheels release lock sbom \
	screenshots bench bench-switch soak soak-short format p4 p4-tofino p4-report bpf proto clean

$(RUNS): pyproject.toml ctoolchain/pyproject.toml lab/pyproject.toml softswitch/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, this is " + sys.version)'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python has no venv: install it (on Debian: apt-get install python3-venv)"; exit 1; }
	@echo "Installing what runs scenarios into $(VENV): some 40 packages, about a minute"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(RUN)/python -m pip install $(QUIETLY) --editable ctoolchain --editable softswitch \
		--editable . --editable lab
	@touch $@

$(HOSTS): $(RUNS)
	@echo "Installing the service's page and what draws pictures into $(VENV)"
	@$(RUN)/python -m pip install $(QUIETLY) --editable '.[service,plot]' --editable plugins/web
	@touch $@

# The service's page and pictures besides.
hosts: $(HOSTS)

# A wheel and a source package of every distribution, into out/wheels.
wheels: $(STAMP)
	for folder in . ctoolchain lab softswitch $(PLUG_INS:%=plugins/%); do \
		(cd $$folder && $(CURDIR)/$(RUN)/python -m hatchling build --directory $(CURDIR)/$(OUT)/wheels) || exit 1; done

# All that a release has, checked and tried in an empty environment, and its notes: out/release.
release: $(STAMP)
	rm -rf $(OUT)/release
	$(MAKE) --no-print-directory wheels OUT=$(OUT)/release
	$(RUN)/python -m twine check --strict $(OUT)/release/wheels/*
	$(RUN)/python deploy/release.py $(OUT)/release

# What the container and the unit's environment install, with hashes, into deploy/requirements*.txt (docs/upgrade.md).
lock: wheels
	$(RUN)/python deploy/dependencies.py lock $(OUT)/wheels $(UPGRADE)

# A software bill of materials (CycloneDX) of every distribution, into out/sbom.
sbom: wheels
	$(RUN)/python deploy/dependencies.py sbom $(OUT)/wheels

$(STAMP): $(RUNS) $(wildcard plugins/*/pyproject.toml)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --editable lab \
		$(PLUG_INS:%=--editable plugins/%)
	touch $@

# What the demo prints is a page at most, and its next steps work as printed (tests/docs/test_demo.py).
demo: $(RUNS)
	@echo "h1 computes three micro-batches of one second, and sends each to h2: 2 s on a link of 10 Mbit/s that they share."
	@echo "6,000 packets go through two switches in this process, which run the compiled P4 program, under each policy."
	@$(RUN)/echelon run topologies/scenarios/fig2.yaml --target softswitch --out $(OUT)/fig2 2>&1
	@echo "Echelon sends first what h2 needs first, so that h2 starts when fair sharing still sends. Next steps:"
	@echo "    $(RUN)/echelon policies"
	@echo "    $(RUN)/echelon init mine && $(RUN)/echelon run mine/scenario.yaml --target fluid -o mine/results"
	@echo "    make hosts && $(RUN)/echelon advise mine/scenario.yaml -o mine/advice.png"
	@echo "They list the policies, run two jobs of your own to be changed, and say which policy to take for these."

# What speaks with BMv2's Thrift server, for runs on BMv2.
BRING_TARGET = [ $(TARGET) != bmv2 ] || $(RUN)/python -c 'import thriftpy2' 2>/dev/null || { \
		echo "Installing thriftpy2 into $(VENV)"; $(RUN)/python -m pip install $(QUIETLY) --editable '.[bmv2]'; }

# Two training jobs and web-search traffic between Mininet's hosts, in real time: first under fifo, then under echelon. Root;
# TARGET is softswitch or bmv2. Says what to install where something is missing (docs/testbed.md).
demo-mininet: $(HOSTS)
	@$(BRING_TARGET)
	$(RUN)/echelon run topologies/scenarios/demo_leaf_spine.yaml --on mininet --target $(TARGET) --out $(OUT)/demo-mininet-$(TARGET)

# Two training jobs of PyTorch on one link, under fair, fifo and echelon, in real time: two minutes (docs/torch.md). Root;
# TARGET is softswitch or bmv2. Installs PyTorch where it is missing; what TORCH names, for example a CPU build.
TORCH ?= torch>=2.13
TORCH_OUT := $(OUT)/demo-torch-$(TARGET)
demo-torch: $(HOSTS)
	@[ "$$(id -u)" = 0 ] || { echo "demo-torch needs root, for network namespaces: run it with sudo"; exit 1; }
	@$(RUN)/python -c 'import torch' 2>/dev/null || { echo "Installing PyTorch into $(VENV)"; \
		$(RUN)/python -m pip install --disable-pip-version-check --editable . --editable lab --editable plugins/importers \
		--editable plugins/torch '$(TORCH)'; }
	@$(BRING_TARGET)
	$(RUN)/echelon run topologies/scenarios/torch_ddp_pair.yaml --on namespaces --target $(TARGET) --out $(TORCH_OUT)
	$(RUN)/echelon plot $(TORCH_OUT) --kind overlap --kind iterations --width text -o $(TORCH_OUT)

# Sums that a switch makes, beside a parameter server and a ring, in virtual time (docs/aggregation.md).
demo-aggregation: $(RUNS)
	@$(RUN)/python -c 'import echelon_aggregation' 2>/dev/null || $(RUN)/python -m pip install --quiet \
		--disable-pip-version-check --editable . --editable lab --editable plugins/aggregation
	$(RUN)/echelon aggregation demo

# The documentation site, into out/site. Warnings are errors.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(RUN)/python -m mkdocs build --strict
	@echo "open out/site/index.html, or serve out/site with python -m http.server, for its search"

# The tests of the controller, the switch and the laboratory: what a user wants to see pass, in six minutes at most.
SHOWN := tests/acceptance tests/docs tests/echelon tests/p4 tests/scenarios tests/softswitch tests/topologies lab/tests
test: $(STAMP)
	ECHELON_EXAMPLES=few $(RUN)/pytest -n auto --dist loadgroup -m 'not wide and not long and not quiet' \
		$(SHOWN) tests/test_*.py

# All tests that want no processors of their own: those of plug-ins, examples, benches and the soak besides, those with
# many drawn cases, and those that take minutes, of which LONG may name folders.
test-all: $(STAMP)
	$(RUN)/pytest -n auto --dist loadgroup
	$(RUN)/pytest -n auto --dist loadgroup -m long $(LONG)

# The layers without sockets and processes, for the edit loop: a minute.
FAST := tests/echelon/files tests/echelon/jobs tests/echelon/fluid tests/echelon/policies tests/echelon/lowering \
	tests/echelon/telemetry tests/echelon/control tests/softswitch/core tests/softswitch/tm
test-fast: $(STAMP)
	$(RUN)/pytest -n auto --dist loadgroup -m 'not io and not long and not quiet' $(FAST)

# The tests that take minutes alone; LONG names folders.
test-long: $(STAMP)
	$(RUN)/pytest -n auto --dist loadgroup -m long $(LONG)

# Property tests with all their examples; `make test` draws an eighth of them, `make test-all` a quarter.
test-properties: $(STAMP)
	ECHELON_EXAMPLES=all $(RUN)/pytest -n auto --dist loadgroup -m 'hypothesis and not long and not quiet'

# What measures jobs and traffic on real hosts, in real time: root, and a machine with nothing else to do.
test-quiet: $(STAMP)
	$(RUN)/pytest -s -m quiet

# Tests of the P4 program on a running switch (ptf/README.md): TARGET is softswitch, bmv2 or tofino, TESTS are modules or
# module.Class, PROGRAM is a directory with another build of the program, SUITE a folder with tests of a plug-in's.
ptf: $(STAMP)
	$(RUN)/python ptf/run.py --target $(TARGET) --out $(OUT)/ptf $(SUITE:%=--suite %) $(PROGRAM:%=--program %) $(TESTS)

lint: $(STAMP)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/lint-imports
	$(RUN)/mypy
	MYPYPATH=ptf:plugins/aggregation/ptf $(RUN)/mypy ptf/run.py ptf/tests/*.py plugins/aggregation/ptf/tests/*.py ptf/platforms/unix.py p4src/*.py deploy/*.py

# How dense the code of each distribution is, and what is worse than its limit. ARGUMENTS=--write lowers the limits to
# figures that are better; ARGUMENTS='--beside FOLDER' measures the package in a folder too.
house: $(STAMP)
	@$(RUN)/python -m tests.house $(ARGUMENTS)

# Make the pictures of docs/observability.md anew (needs chromium and chromium-driver).
screenshots: $(STAMP)
	ECHELON_SCREENSHOTS=docs/images $(RUN)/pytest plugins/web/tests/test_pictures.py

bench: $(STAMP)
	$(RUN)/python -m bench

# softswitch beside BMv2 (where simple_switch_grpc is installed): lossless rates, entries per second. Needs root.
# ARGUMENTS=--check only looks whether what comes out of ours is right, for a few seconds.
bench-switch: $(STAMP)
	$(RUN)/python -m bench.switch $(ARGUMENTS)

# The long runs: random events of the controller, random packets and messages, a day of virtual time, and a real service
# that is killed again and again, gets random requests or strangers, goes through many equal cycles, or whose switches
# lie.
soak: $(STAMP)
	$(RUN)/python -m tests.soak control --sequences 10000 --events 50
	$(RUN)/python -m tests.soak packets
	$(RUN)/python -m tests.soak p4runtime
	$(RUN)/python -m tests.soak hostile --programs 2000
	$(RUN)/python -m tests.soak day
	$(RUN)/python -m tests.soak restarts --sequences 500
	$(RUN)/python -m tests.soak kills --runs 10 --kills 100 --deaths 0.3
	$(RUN)/python -m tests.soak spines --kills 50
	$(RUN)/python -m tests.soak moves --rounds 50
	$(RUN)/python -m tests.soak agents --kills 200
	$(RUN)/python -m tests.soak requests --requests 100000
	$(RUN)/python -m tests.soak work --files 10000
	$(RUN)/python -m tests.soak tcp
	$(RUN)/python -m tests.soak lying --rpcs 100000
	$(RUN)/python -m tests.soak attacks
	$(RUN)/python -m tests.soak cycles

# About two minutes of them, from the seed SEED on: what each commit is tried with, each with another seed. With fewer
# messages, memory that a switch takes once would look like growth.
SEED ?= 1
soak-short: $(STAMP)
	$(RUN)/python -m tests.soak control --sequences 100 --events 50 --seed $(SEED)
	$(RUN)/python -m tests.soak packets --packets 20000 --seed $(SEED)
	$(RUN)/python -m tests.soak p4runtime --messages 4000 --seed $(SEED)
	$(RUN)/python -m tests.soak requests --requests 300 --seed $(SEED)
	$(RUN)/python -m tests.soak work --files 10 --seed $(SEED)
	$(RUN)/python -m tests.soak lying --rpcs 200 --seed $(SEED)
	$(RUN)/python -m tests.soak kills --runs 1 --kills 3 --seed $(SEED)

format: $(STAMP)
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

# Recompile the P4 programs (needs p4c-bm2-ss on the PATH) and record which sources the output was made from.
AGGREGATION := plugins/aggregation/echelon_aggregation/p4src
p4: $(STAMP)
	cd p4src/v1model && p4c-bm2-ss --std p4-16 --arch v1model -o ../build/v1model/echelon.json \
		--p4runtime-files ../build/v1model/echelon.p4info.txtpb echelon.p4
	cd $(AGGREGATION)/v1model && p4c-bm2-ss --std p4-16 --arch v1model -I ../../../../../p4src \
		-o ../build/v1model/echelon.json --p4runtime-files ../build/v1model/echelon.p4info.txtpb aggregation.p4
	cd p4src/dscp && p4c-bm2-ss --std p4-16 --arch v1model --Wdisable=unused -o ../build/dscp/echelon.json \
		--p4runtime-files ../build/dscp/echelon.p4info.txtpb dscp.p4
	$(RUN)/python -c 'from pathlib import Path; from echelon.model.p4program import source_digest; \
		[(Path("p4src/build") / name / "SOURCE.sha256").write_text(source_digest(Path("p4src"), name) + "\n") \
			for name in ("v1model", "dscp")]; \
		extension = Path("$(AGGREGATION)"); \
		(extension / "build/v1model/SOURCE.sha256").write_text( \
			source_digest(Path("p4src"), "v1model", extension) + "\n")'
	for name in ecn monitor priority; do (cd examples/exercises/queues/solution && \
		p4c-bm2-ss --std p4-16 --arch v1model --Wdisable=unused -I .. -o $$name.json $$name.p4) || exit 1; done

# Compile the TNA program for Tofino 1 and 2, and that of aggregation for Tofino 1, and keep what does not change from run to
# run. P4C_TOFINO is the compiler and BFAS the assembler of a p4c that was built with its Tofino back end (-DENABLE_TOFINO=ON).
P4C_TOFINO ?= p4c-barefoot
BFAS ?= bfas
TNA_OUT := $(OUT)/p4
p4-tofino: $(STAMP)
	@for tool in $(P4C_TOFINO) $(BFAS); do command -v $$tool >/dev/null || { echo "$$tool is not installed: build p4c with" \
		"-DENABLE_TOFINO=ON, and name its tools: make p4-tofino P4C_TOFINO=PATH BFAS=PATH"; exit 1; }; done
	for made in tofino:tna:p4src:echelon tofino2:t2na:p4src:echelon tofino:tna:$(AGGREGATION):aggregation; do \
		set -- $$(echo $$made | tr : ' ') && made=$(TNA_OUT)/$$2-$$4 && mkdir -p $$made && \
		$(P4C_TOFINO) --target $$1 --arch $$2 --std p4-16 -g -I p4src -o $$made --bf-rt-schema $$made/bf-rt.json \
			--p4runtime-files $$made/echelon.p4info.txtpb $$3/tna/$$4.p4 && \
		$(BFAS) --target $$1 -o $$made/pipe $$made/pipe/$$4.bfa && \
		$(RUN)/python p4src/tofino_output.py $$3/build/$$2 $$made $$4 $$(echo $$3 | grep -v ^p4src) || exit 1; \
	done

# Recompile the agent's program for the kernel (on Debian: apt-get install clang llvm libbpf-dev), and record its source.
BPF := plugins/torch/echelon_torch/agent/bpf
RANKS := lab/echelon_lab/endhosts/ranks.h p4src/shared/constants.h p4src/v1model/sizes_v1model.h
bpf:
	cd $(BPF) && clang -O2 -g -target bpf -mcpu=v2 -Wall -I/usr/include/$$(uname -m)-linux-gnu -fdebug-prefix-map=$$PWD=. \
		-c connections.bpf.c -o connections.bpf.o && llvm-strip -g connections.bpf.o
	cd $(BPF) && clang -O2 -g -target bpf -mcpu=v2 -Wall -I/usr/include/$$(uname -m)-linux-gnu -fdebug-prefix-map=$$PWD=. \
		$(foreach file,$(RANKS),-iquote $(dir ../../../../../$(file))) \
		-c ranks.bpf.c -o ranks.bpf.o && llvm-strip -g ranks.bpf.o
	cd $(BPF) && sha256sum connections.bpf.c ranks.bpf.c $(RANKS:%=../../../../../%) >SOURCE.sha256

# Write what the program compiled for Tofino takes of the chips into docs/tofino.md, with its picture.
p4-report: $(STAMP)
	$(RUN)/python p4src/tofino_report.py

# Regenerate the messages of BF Runtime (needs grpcio-tools and googleapis-common-protos in the environment).
proto: $(STAMP)
	cd plugins/tofino/echelon_tofino/bfrt_proto && $(CURDIR)/$(RUN)/python -m grpc_tools.protoc -I. -I$$($(CURDIR)/$(RUN)/python -c 'import google.rpc; \
		print(google.rpc.__path__[0].removesuffix("/google/rpc"))') --python_out=. --pyi_out=. bfruntime.proto
	sed -i 's/^from google.rpc import/from finsy.proto.google.rpc import/' plugins/tofino/echelon_tofino/bfrt_proto/bfruntime_pb2.py plugins/tofino/echelon_tofino/bfrt_proto/bfruntime_pb2.pyi

clean:
	rm -rf $(VENV) $(OUT) .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
