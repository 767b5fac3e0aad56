# Each target first installs what it lacks (scripts/setup.sh). `make help` lists them.

CARGO ?= cargo
ARGS ?=
# Those that need an engine. Each has a suite and a script of its name: tests/NAME,
# tests/cluster/NAME-up.sh.
BACKENDS ?= docker,kubernetes,slurm,gridengine,ssh
RUNTIME ?= docker
comma := ,
space := $(subst ,, )
NAMES := $(subst $(comma), ,$(BACKENDS))
# The suites whose processes may share a job: modules of tests/suites.
SHARED ?= managers pipe process queue queue_arrays supervisor sync
SUITES ?= conformance engines $(NAMES)
FUZZ_SECONDS ?= 60
SOAK ?= 125
# How long `make sim` plays fresh seeds, and how many at most.
SIM_SECONDS ?= 60
SIM_SEEDS ?= 1000000000
# `steps` lets threads lose their turns at any step of the code.
SIM_PROFILE ?= release
# One seed of a scenario, to see its history: make sim SEED=7 SCENARIO=queue
SEED ?=
SCENARIO ?=
# How long worlds look for each planted bug, and which ones: make mutations MUTATION="dead-gets-lock"
MUTATION_SECONDS ?= 600
MUTATION ?=
# One of several parts of them, as 1/8.
MUTATION_PART ?=
# Empty: without optimizations, with what `make test` has built.
SOAK_BUILD ?= -r

# scripts/setup.sh installs into this directory where it does not run as root.
export PATH := $(shell scripts/setup.sh bin):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup setup-tests setup-local run install reference site pictures test test-user test-root test-docs test-hosts test-nng test-seeds test-features cluster-up cluster-down slurm-up slurm-down \
	gridengine-up gridengine-down test-cluster format lint deny advisories package bench bench-all soak sim mutations fuzz miri clean

## help: this list
help:
	@echo 'make TARGET [ARGS="…"]'
	@sed -n 's/^## \([a-z-]*\): \(.*\)/  \1\t\2/p' Makefile | expand -t 14

## setup: install what is missing, and nothing else
setup:
	@scripts/setup.sh

setup-tests: setup
	@scripts/setup.sh tests

# Default features need no cmake.
setup-local:
	@scripts/setup.sh local

## run: estimate pi on a pool of worker processes; ARGS="--processes 8 --samples 100000000"
run: setup-local
	$(CARGO) run --profile quick -p fiber-examples --example pi_estimation -- $(ARGS)

## install: the command `fiber`, where cargo puts commands; FEATURES=docker,kubernetes,slurm,gridengine,ssh adds sessions there
install: $(if $(FEATURES),setup,setup-local)
	$(CARGO) install --locked --profile quick --path cli $(if $(FEATURES),--features $(FEATURES))
	@$(if $(FEATURES),:,echo "It runs and shows programs of this machine. To add engines: make install FEATURES=docker,slurm")

## reference: write docs/cli.md, docs/configuration.md and docs/metrics.md from the code
reference: setup
	$(CARGO) run --quiet -p fiber-cli --features all-backends -- reference >docs/cli.md.new
	mv docs/cli.md.new docs/cli.md
	$(CARGO) run --quiet -p fiber-cli --features all-backends -- reference --configuration \
		>docs/configuration.md.new
	mv docs/configuration.md.new docs/configuration.md
	$(CARGO) run --quiet -p fiber-runtime --features metrics --example metrics_page >docs/metrics.md.new
	mv docs/metrics.md.new docs/metrics.md

## site: the pages and the API as one static site in target/site; a broken link fails, and a word that the search does not find
site: setup
	@scripts/setup.sh site
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --workspace --no-deps --all-features
	@target="$${CARGO_TARGET_DIR:-target}"; \
		"$$(scripts/setup.sh site-python)" scripts/site/build.py --api "$$target/doc" --out "$$target/site"

## pictures: record docs/images/top.svg: `fiber top`, while a worker is killed
pictures: setup
	@scripts/setup.sh observability
	$(CARGO) build --quiet -p fiber-cli -p fiber-examples --bin fiber --example sweep --example top_picture
	$${CARGO_TARGET_DIR:-target}/debug/examples/top_picture >docs/images/top.svg.new
	mv docs/images/top.svg.new docs/images/top.svg

## test: all tests and the examples in the documentation; ARGS="name" picks some
test: setup-tests
	@scripts/test.sh $(ARGS)

## test-user: the tests that `make test` has built, as a user without rights, which takes root
test-user: setup-tests
	@scripts/test-as-user.sh $(ARGS)

## test-root: the tests that `make test` skips without root, as it has built them
test-root: setup-tests
	@scripts/test-root.sh $(ARGS)

## test-hosts: the SHARED suites once more, with several processes in one job
test-hosts: setup-tests
	@FIBER_PROCESSES_PER_JOB=3 scripts/test.sh \
		-E 'binary(=suites) & test(/^($(subst $(space),|,$(SHARED)))::/)' $(ARGS)

## test-nng: the tests that use links, with nng between the processes in place of Unix sockets
test-nng: setup-tests
	@FIBER_LINK=nng scripts/test.sh -E 'not package(/^fiber-(cli|core|values|stacks|journal|backends|conformance|gridengine|sim|world)$$/)' $(ARGS)

## test-seeds: known and fresh seeds of simulated worlds, for SIM_SECONDS, SIM_SEEDS at most, some of them twice
test-seeds: setup-tests
	@NEXTEST_PROFILE=soak SIM_SECONDS=$(SIM_SECONDS) SIM_SEEDS=$(SIM_SEEDS) SIM_TWICE=1000 \
		scripts/test.sh -E 'binary(=seeds)' $(ARGS)

## test-features: fiber with default features: crates, errors that name a missing feature, size of a program
test-features: setup-local
	@BACKENDS="$(NAMES)" scripts/test-features.sh

## test-docs: the printed programs, each in a crate outside, with the features that its page names, and the projects of `fiber new`
test-docs: setup
	@scripts/check-documents.sh

## cluster-up: start a Docker engine, Kubernetes, Slurm and Grid Engine clusters and machines with sshd for the tests, if none answer; as root it installs and builds them; RUNTIME=containerd
cluster-up:
	@tests/cluster/docker-up.sh
	@tests/cluster/registry.sh
	@# A download or a port may fail once.
	@set -e; for name in $(NAMES); do \
		up="env RUNTIME=$(RUNTIME) tests/cluster/$$name-up.sh"; $$up || $$up; done

## cluster-down: stop what cluster-up started
cluster-down:
	@set -e; for name in $(filter-out docker,$(NAMES)) docker; do tests/cluster/$$name-down.sh; done

## slurm-up: start a Slurm cluster for the tests, if none answers; as root it installs Slurm
slurm-up:
	@tests/cluster/slurm-up.sh

## slurm-down: stop what slurm-up started
slurm-down:
	@tests/cluster/slurm-down.sh

## gridengine-up: start a Grid Engine cluster for the tests, if none answers; as root it installs Grid Engine
gridengine-up:
	@tests/cluster/gridengine-up.sh

## gridengine-down: stop what gridengine-up started
gridengine-down:
	@tests/cluster/gridengine-down.sh

## test-cluster: the SUITES on BACKENDS (docker,kubernetes,slurm,gridengine,ssh), after cluster-up; ARGS="name" picks some; RUNTIME=containerd
test-cluster: setup-tests cluster-up
	KUBECONFIG="$$(tests/cluster/kubeconfig.sh)" SLURM_CONF="$$(tests/cluster/slurm-conf.sh)" \
		TEST_BACKENDS="$(BACKENDS)" TEST_GRIDENGINE="$$(tests/cluster/gridengine-enter.sh)" \
		TEST_SSH_CONFIG="$$(tests/cluster/ssh-config.sh)" \
		TEST_REGISTRY="$(if $(filter containerd,$(RUNTIME)),$$(tests/cluster/registry-address.sh))" \
		scripts/test-engines.sh '$(subst $(space),|,$(SUITES))' $(ARGS)

## format: the format of all code, its size, the places of planted bugs and the one of the address, the order of .ci/run; it builds nothing
format:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) fmt --manifest-path benches/peers/Cargo.toml --check
	sim/mutations.py check
	@scripts/check-address.sh
	@scripts/check-size.py
	@python3 -B .ci/checks_test.py

## lint: `format`, clippy with all features and with few, each feature alone, documentation: a warning fails
lint: setup format
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	$(CARGO) clippy -p fiber -- -D warnings
	$(CARGO) clippy -p fiber --features docker -- -D warnings
	$(CARGO) clippy -p fiber-cli -- -D warnings
	@scripts/check-features.sh
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --all-features

## deny: licences, sources and duplicates of all dependencies (deny.toml)
deny:
	@scripts/setup.sh deny
	$(CARGO) deny --workspace --all-features check --hide-inclusion-graph bans licenses sources

## advisories: known vulnerabilities of dependencies, from RustSec's database, which it downloads
advisories:
	@scripts/setup.sh deny
	$(CARGO) deny --workspace --all-features check advisories

## package: build each crate from the files that its package has
package: setup
	$(CARGO) package --workspace --exclude fiber-examples \
		--exclude fiber-test-macros --exclude fiber-test-support --all-features --locked $(ARGS)

# The clusters of cluster-up, for the cases that use them if they are up.
BENCH_CLUSTERS = KUBECONFIG="$${KUBECONFIG:-$$(tests/cluster/kubeconfig.sh)}" \
	SLURM_CONF="$$(tests/cluster/slurm-conf.sh)" BENCH_SSH_CONFIG="$$(tests/cluster/ssh-config.sh)"

## bench: ten promises about speed, beside bare sockets; prints a table; ARGS="noop call" picks some
bench: setup
	$(CARGO) bench --bench suite -- $(ARGS)

## bench-all: these and more beside multiprocessing, Ray, Erlang, Open MPI and others, which it installs, and on the clusters that are up
bench-all: setup
	@scripts/setup.sh peers
	@# A workspace of its own, with the versions of this one.
	cp Cargo.lock benches/peers/Cargo.lock
	$(BENCH_CLUSTERS) BENCH_PYTHON="$$(scripts/setup.sh python)" \
		$(CARGO) bench --manifest-path benches/peers/Cargo.toml -- $(ARGS)

## soak: objects made and dropped, and processes killed, SOAK (125) times as often as by `make test`
soak: setup-tests
	@NEXTEST_PROFILE=soak SOAK=$(SOAK) scripts/test.sh $(SOAK_BUILD) $(or $(ARGS), -E \
		'binary(=suites) & test(/free|killed|chaos/) | binary(=seeds) | binary(=durable) & test(killed)')

## sim: play scenarios under fresh seeds in simulated worlds; SIM_SECONDS=60; SIM_SEEDS=1000; SIM_PROFILE=steps; SEED=7 SCENARIO=queue shows one
sim: setup-local
	@$(if $(filter steps,$(SIM_PROFILE)),RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/rustc-steps.sh) \
		$(CARGO) build --quiet --profile $(SIM_PROFILE) -p fiber-sim
	@$${CARGO_TARGET_DIR:-target}/$(SIM_PROFILE)/fiber-sim $(if $(SCENARIO),--scenario $(SCENARIO)) \
		$(if $(SEED),--seed $(SEED),--for $(SIM_SECONDS) --most $(SIM_SEEDS) --known sim/seeds.txt) $(ARGS)

## mutations: plant bugs in the protocol, one at a time, and let simulated worlds find them; MUTATION_SECONDS=600; MUTATION="name" picks some
mutations: setup-local
	@CARGO="$(CARGO)" sim/mutations.py run --for $(MUTATION_SECONDS) $(if $(MUTATION_PART),--part $(MUTATION_PART)) $(MUTATION)

## fuzz: each fuzz target for FUZZ_SECONDS (60)
fuzz: setup
	@scripts/fuzz.sh $(FUZZ_SECONDS)

## miri: tests of the unsafe code of values under miri, if a nightly toolchain has it
miri: setup-local
	@scripts/miri.sh $(ARGS)

## clean: remove what was built
clean:
	$(CARGO) clean
