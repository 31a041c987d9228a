# Every command of the project. Each target does its own set-up, and is quick when that is done already.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help tools build demo dev test test-ops soak chaos lint check-alerts check-chart bench clean-tools

CARGO ?= cargo
# What a target passes on to the program: make demo ARGS='--jobs 1000'
ARGS ?=

# A heading that stands out in a long log.
say = @printf '\n== %s\n' '$(1)'

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

tools: ## fetch Postgres, Redis and anvil into .tools/; as root it also installs packages that they need, by apt
	@scripts/tools.sh postgres redis anvil

build: ## build the program, unoptimised (debug/holdfast in the target folder of cargo)
	$(call say,build)
	$(CARGO) build --locked

demo: tools ## the main job, shown: two relayers, one killed in the middle, nothing lost
	$(call say,demo)
	$(CARGO) run --locked -- demo $(ARGS)

dev: tools ## the whole service with its own Postgres, Redis and EVM node
	$(CARGO) run --locked -- dev $(ARGS)

test: ## everything that must hold before a change lands: lint, all tests, alert rules
	$(call say,tools)
	@scripts/tools.sh postgres redis anvil promtool hardhat ethereumjs helm kubernetes-validate
	@$(MAKE) --no-print-directory lint
	$(call say,tests)
	$(CARGO) test --workspace --locked
	@$(MAKE) --no-print-directory test-ops

test-ops: check-alerts check-chart ## what watches and ships the service: alert rules, Helm chart

soak: tools ## ten minutes of everything that can go wrong at once; SOAK_SECONDS, SOAK_SEED
	$(call say,soak)
	$(CARGO) test --test holdfast --locked -- --ignored --exact soak::long --nocapture

chaos: tools ## ten minutes of operators at work while processes die; CHAOS_SECONDS, CHAOS_SEED
	$(call say,chaos)
	$(CARGO) test --test holdfast --locked -- --ignored --exact chaos::long --nocapture

lint: ## formatting and clippy, warnings denied
	$(call say,formatting)
	$(CARGO) fmt --all --check
	$(call say,clippy)
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

check-alerts: ## the alert rules, and their unit tests
	$(call say,alert rules)
	@scripts/tools.sh promtool
	@scripts/promtool.sh

check-chart: ## the Helm chart, rendered by helm 3 and 4 over a matrix of values and held against the schemas of Kubernetes
	$(call say,Helm chart)
	@scripts/tools.sh helm kubernetes-validate
	@scripts/chart.sh

bench: tools ## load against the service, the raw node and raw Postgres, optimised (the first build takes about ten minutes)
	$(call say,bench)
	$(CARGO) run --release --locked -- bench $(ARGS)

clean-tools: ## remove what `make tools` fetched
	rm -rf .tools
