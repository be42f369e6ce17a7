# Thin front of CMake: scripts/dev.sh does the work and installs what is missing.
.PHONY: all deps demo check check-all fuzz bench lint clean
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
bench:
	@scripts/dev.sh bench
lint:
	@scripts/dev.sh lint
clean:
	rm -rf build/release build/bench
