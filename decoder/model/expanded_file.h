// A compressed file (.xz, .zst, .gz: kernel modules) expanded in memory.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace asof {

bool is_compressed_name(const std::string& path);

// nullptr: it cannot be read, is damaged, or is larger than `limit` when it is expanded.
std::shared_ptr<const std::vector<uint8_t>> expand_file(const std::string& path,
                                                        uint64_t limit = 256ULL << 20);

}  // namespace asof
