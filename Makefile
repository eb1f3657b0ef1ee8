# klbr: `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

CARGO ?= cargo
PYTHON ?= python3
PREFIX ?= /usr/local
DESTDIR ?=
VENV := .venv
PYTHON_SOURCES = . ../tests ../benches

bindir = $(DESTDIR)$(PREFIX)/bin
libdir = $(DESTDIR)$(PREFIX)/lib/klbr
mandir = $(DESTDIR)$(PREFIX)/share/man
docdir = $(DESTDIR)$(PREFIX)/share/doc/klbr
unitdir = $(DESTDIR)$(PREFIX)/lib/systemd
# polkit looks here and in /etc alone, whatever the prefix (polkit 122).
rulesdir = $(DESTDIR)/usr/share/polkit-1/rules.d
# The program that `install-built` installs.
BUILT ?= target/release/klbr

.PHONY: help
help: ## This list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: need
need:
	@command -v $(CARGO) >/dev/null || { echo "klbr needs a Rust toolchain, 1.85 or later (Debian 13: apt install cargo; else https://rustup.rs)" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "klbr needs a C compiler for SQLite (apt install gcc libc6-dev)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "klbr needs Python 3.11 or later as $(PYTHON) (apt install python3, or PYTHON=/path/to/python3)" >&2; exit 1; }

.PHONY: build
build: need ## The program, with debug information.
	$(CARGO) build --locked

.PHONY: run
run: build ## The main job with real inputs on a throw-away host.
	@demo/run

.PHONY: test
test: need venv ## Every test.
	@[ "$$(id -u)" = 0 ] || echo "SKIPPED: what needs root, such as the units on a real systemd (tests/systemd.rs)" >&2
	@echo "SKIPPED: limits of memory and tasks, which need a virtual machine (make test-vm)" >&2
	$(CARGO) test --locked --no-fail-fast
	cd python && $(PYTHON) -m unittest discover -s tests -t .

.PHONY: test-vm
test-vm: need ## What needs control groups that a container lacks, in a virtual machine: minutes, root, qemu.
	$(CARGO) test --locked --test systemd -- --ignored

# What tests use from PyPI. Without a network the tests that need it say that they are skipped.
.PHONY: venv
venv: $(VENV)/requirements ## Test tools from PyPI, in .venv/.

$(VENV)/requirements: tests/requirements.txt
	@if $(PYTHON) -m venv $(VENV) && $(VENV)/bin/pip install --quiet --disable-pip-version-check -r $<; then \
		cp $< $@; \
	else \
		echo "SKIPPED: no test tools from PyPI (they need python3-venv and a package index); tests that use them say so" >&2; \
	fi

.PHONY: lint
lint: need venv ## Warnings as errors: clippy, rustfmt, cargo deny, ruff, mypy.
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
		$(CARGO) deny --locked --log-level error check bans licenses sources; \
		if $(CARGO) deny --log-level off fetch db >/dev/null 2>&1; then $(CARGO) deny --locked --log-level error check --disable-fetch advisories; \
		else echo "SKIPPED: advisories (their database needs the network)" >&2; fi; \
	else echo "SKIPPED: cargo deny (cargo install --locked cargo-deny)" >&2; fi
	@if [ -x $(VENV)/bin/ruff ]; then \
		cd python; ../$(VENV)/bin/ruff check --config pyproject.toml $(PYTHON_SOURCES); \
		../$(VENV)/bin/ruff format --check --config pyproject.toml $(PYTHON_SOURCES); ../$(VENV)/bin/mypy; \
	else echo "SKIPPED: ruff and mypy" >&2; fi

.PHONY: fmt
fmt: need venv ## Formats Rust and Python.
	$(CARGO) fmt
	@if [ -x $(VENV)/bin/ruff ]; then cd python; ../$(VENV)/bin/ruff format --config pyproject.toml $(PYTHON_SOURCES); fi

.PHONY: bench
bench: need ## Every benchmark, as ratios to floors of the same run.
	$(CARGO) bench --locked --no-fail-fast
	$(PYTHON) benches/worker_start.py
	@if [ "$$(id -u)" = 0 ]; then $(PYTHON) benches/containment.py; else echo "SKIPPED: benches/containment.py needs root" >&2; fi

.PHONY: release
release: need
	$(CARGO) build --locked --release

# PYTHON compiles the worker for the interpreter that will run it. DESTDIR is for packages; PREFIX is where it will run.
.PHONY: install
install: release install-built ## Into PREFIX (/usr/local), below DESTDIR.

.PHONY: install-built
install-built:
	install -Dm755 "$(BUILT)" "$(bindir)/klbr"
	rm -rf "$(libdir)/python"
	cd python && find klbr klbr_hooks \( -name '*.py' -o -name '*.json' -o -name py.typed \) -exec install -Dm644 {} "$(libdir)/python/{}" \;
	$(PYTHON) -m compileall -q -s '$(DESTDIR)' "$(libdir)/python/klbr"
	for page in man/*.[1-8]; do install -Dm644 $$page "$(mandir)/man$${page##*.}/$${page##*/}"; done
	for unit in units/*/*; do install -Dm644 $$unit "$(unitdir)/$${unit#units/}"; done
	install -Dm644 units/klbr.catalog "$(unitdir)/catalog/klbr.catalog"
	install -Dm644 units/klbr.sysusers "$(DESTDIR)$(PREFIX)/lib/sysusers.d/klbr.conf"
	case '$(PREFIX)' in /usr|/usr/local) install -Dm644 units/klbr.rules "$(rulesdir)/klbr.rules";; esac
	sed -i 's,/usr/bin/klbr,$(PREFIX)/bin/klbr,' "$(unitdir)"/*/klbr*.service
	install -Dm644 -t "$(docdir)" README.md ARCHITECTURE.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE

.PHONY: uninstall
uninstall: ## Removes what `install` installed.
	rm -f "$(bindir)/klbr"
	rm -rf "$(libdir)" "$(docdir)"
	for unit in units/*/*; do rm -f "$(unitdir)/$${unit#units/}"; done
	rm -f "$(unitdir)/catalog/klbr.catalog" "$(DESTDIR)$(PREFIX)/lib/sysusers.d/klbr.conf" "$(rulesdir)/klbr.rules"
	for page in man/*.[1-8]; do rm -f "$(mandir)/man$${page##*.}/$${page##*/}"; done

.PHONY: clean
clean: ## Removes what was built.
	$(CARGO) clean
	rm -rf $(VENV)
