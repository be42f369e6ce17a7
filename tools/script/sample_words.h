// Parts of perf script's lines of samples.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "decoder/perf/full_sample.h"
#include "tools/disasm/disasm.h"

namespace asof {

// "/P/-/-/3/ ": flags of an entry of a branch stack.
std::string branch_entry_words(uint64_t flags);
// " ABI:2    AX:0x1 ...": those that a sample has of the registers of `mask`.
std::string register_words(const FullSample::Registers& registers, uint64_t mask, CodeMachine machine,
                           bool swapped);
// "4K"; "N/A": not recorded.
std::string page_size_word(uint64_t bytes);
// What a BPF program gave, as bytes and as text.
std::string bpf_output_lines(std::span<const uint8_t> bytes);

}  // namespace asof
