# Thin front of CMake: scripts/dev.sh does the work and installs what is missing.
.PHONY: all deps demo check bench lint clean
all:
	@scripts/dev.sh build
deps:
	@scripts/dev.sh deps
demo:
	@scripts/dev.sh demo
check:
	@scripts/dev.sh check
bench:
	@scripts/dev.sh bench
lint:
	@scripts/dev.sh lint
clean:
	rm -rf build/release build/bench
