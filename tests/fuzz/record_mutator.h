// A mutation of what is inside of block streams: their records are packed by zstd, with checksums, so that no mutation
// of the bytes of a file gets past them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace asof::fuzz {

// Changes `data`, of `size` bytes with room for `most`, by `mutate` (libFuzzer's own). Returns the new size.
using MutateBytes = size_t (*)(uint8_t* data, size_t size, size_t most);
size_t mutate_record(uint8_t* data, size_t size, size_t most, unsigned seed, MutateBytes mutate);

}  // namespace asof::fuzz

#ifdef ASOF_LIBFUZZER
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);
// One of three mutations is of the file's own bytes.
#define FUZZ_MUTATES_RECORDS                                                                          \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) { \
    return seed % 3 == 0 ? LLVMFuzzerMutate(data, size, most)                                         \
                         : asof::fuzz::mutate_record(data, size, most, seed / 3, LLVMFuzzerMutate);   \
  }
#else
#define FUZZ_MUTATES_RECORDS
#endif
