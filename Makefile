# What there is to run. Each target installs what it lacks first (scripts/setup.sh): see `make help`.

CARGO ?= cargo
ARGS ?=
BACKENDS ?= docker,kubernetes
RUNTIME ?= docker
SUITES ?= conformance docker kubernetes engines
FUZZ_SECONDS ?= 60

# Where scripts/setup.sh puts what it installs without root. The name is harmless while nothing is there.
export PATH := $(shell scripts/setup.sh bin):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup run install reference test test-nng cluster-up cluster-down test-cluster lint bench bench-all fuzz clean

## help: this list
help:
	@echo 'make TARGET [ARGS="…"]'
	@sed -n 's/^## \([a-z-]*\): \(.*\)/  \1\t\2/p' Makefile | expand -t 14

## setup: install what is missing, and nothing else
setup:
	@scripts/setup.sh

## run: estimate pi on a pool of worker processes; ARGS="--processes 8 --samples 100000000"
run: setup
	$(CARGO) run --release --example pi_estimation -- $(ARGS)

## install: the command `fiber`, where cargo puts commands
install: setup
	$(CARGO) install --locked --path cli

## reference: writes docs/cli.md, which is made of the command itself
reference: setup
	$(CARGO) run --quiet -p fiber-cli -- reference >docs/cli.md.new
	mv docs/cli.md.new docs/cli.md

## test: all tests and the examples in the documentation; ARGS="name" picks some
test: setup
	$(CARGO) test --workspace $(ARGS)

## test-nng: the same, with nng between the processes in place of Unix sockets
test-nng: setup
	FIBER_LINK=nng $(CARGO) test --workspace $(ARGS)

## cluster-up: a Docker engine and a Kubernetes cluster for the tests, if none answer; as root it installs and builds them; RUNTIME=containerd
cluster-up:
	@tests/cluster/docker-up.sh
	@tests/cluster/registry.sh
	@if echo "$(BACKENDS)" | grep -q kubernetes; then RUNTIME="$(RUNTIME)" tests/cluster/k8s-up.sh; fi

## cluster-down: stops what cluster-up started
cluster-down:
	@tests/cluster/k8s-down.sh
	@tests/cluster/docker-down.sh

## test-cluster: the SUITES on BACKENDS (docker,kubernetes), which it starts if need be; ARGS="name" picks some; RUNTIME=containerd
test-cluster: setup cluster-up
	KUBECONFIG="$$(tests/cluster/kubeconfig.sh)" TEST_BACKENDS="$(BACKENDS)" \
		TEST_REGISTRY="$(if $(filter containerd,$(RUNTIME)),$$(tests/cluster/registry-address.sh))" \
		$(CARGO) test --workspace $(SUITES:%=--test %) $(ARGS)

## lint: formatting, clippy, documentation: a warning fails
lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

## bench: fiber beside multiprocessing and bare sockets; prints a table, writes docs/benchmarks.md
bench: setup
	KUBECONFIG="$${KUBECONFIG:-$$(tests/cluster/kubeconfig.sh)}" $(CARGO) bench --bench suite -- $(ARGS)

## bench-all: the same beside Ray, Dask, joblib, Open MPI and gloo too, which it installs for itself
bench-all: setup
	@scripts/setup.sh peers
	KUBECONFIG="$${KUBECONFIG:-$$(tests/cluster/kubeconfig.sh)}" \
		BENCH_PYTHON="$$(scripts/setup.sh python)" BENCH_PEERS=multiprocessing,ray,dask,joblib \
		$(CARGO) bench --bench suite -- $(ARGS)

## fuzz: each fuzz target for FUZZ_SECONDS (60)
fuzz: setup
	@scripts/fuzz.sh $(FUZZ_SECONDS)

## clean: what was built
clean:
	$(CARGO) clean
