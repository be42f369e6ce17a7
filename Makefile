# Thin front of CMake: scripts/dev.sh does the work and installs what is missing.
.PHONY: all deps demo check check-all fuzz soak bench lint clean
all:
	@scripts/dev.sh build
deps:
	@scripts/dev.sh deps
demo:
	@scripts/dev.sh demo
check:
	@scripts/dev.sh check
check-all:
	@scripts/dev.sh check-all
# SECONDS=60 for each target; TARGETS="..." for some.
fuzz:
	@scripts/dev.sh deps
	@scripts/dev.sh clang_deps
	@scripts/fuzz.sh run $(or $(SECONDS),60) $(TARGETS)
# One process that must not grow, for SECONDS=600 of CPU time (docs/fuzzing.md).
soak: all
	@cmake --build build/release --target asof_soak
	@build/release/tests/soak/asof_soak tests/data $(or $(SECONDS),600) $(SEED)
bench:
	@scripts/dev.sh bench
lint:
	@scripts/dev.sh lint
clean:
	rm -rf build/release build/bench
