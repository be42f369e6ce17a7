// Runs a case through the real reader, store and flow, with each order of its records, with one and with
// several workers, with and without the block cache, and compares the result with what the case expects.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/case_file.h"

namespace asof::test {

// The differences, one entry each; empty: all is as the case expects. Throws CaseError for a bad file.
std::vector<std::string> run_case(const CaseFile& c, const std::filesystem::path& scratch);

}  // namespace asof::test
