// Inputs from which the fuzzers start (make_seeds.cpp).
#pragma once
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace asof::test {

using SeedBytes = std::vector<uint8_t>;
using SeedFiles = std::map<std::string, SeedBytes>;

SeedBytes bytes_of(std::string_view text);
SeedBytes joined(std::initializer_list<SeedBytes> parts);
// As fuzz::split_files() takes them apart.
SeedBytes folder(const SeedFiles& files);

class Seeds {
 public:
  explicit Seeds(std::filesystem::path to) : to_(std::move(to)) {}
  void add(const std::string& target, const std::string& name, const SeedBytes& bytes) const;

 private:
  std::filesystem::path to_;
};

// Of captures and other files that tests wrote, in folders of one folder.
void add_kept(const Seeds& seeds, const std::filesystem::path& folders);

}  // namespace asof::test
