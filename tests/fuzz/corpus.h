// Inputs that are kept of a fuzz target.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace asof::fuzz {

// By name. Empty: there is no such file, or nothing in it.
std::map<std::string, std::vector<uint8_t>> read_corpus(const std::string& file);

}  // namespace asof::fuzz
