#include "tools/inject/injected_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "decoder/io/folder.h"
#include "tools/output/unfinished_file.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCopies = "kcore_dir";  // and kcore_dir__<pid> of guests

std::vector<fs::path> copies_in(const std::string& folder) {
  std::vector<fs::path> out;
  std::error_code failed;
  for (const std::string& name : names_in(folder, failed)) {
    const fs::path path = fs::path(folder) / name;
    if (name.starts_with(kCopies) && fs::is_directory(path, failed)) out.push_back(path);
  }
  return out;
}

std::unexpected<Error> cannot(const fs::path& what, const std::error_code& why) {
  return fail(Code::kCannotWrite, what, Error::kNoOffset, fmt::format("cannot write: {}", why.message()),
              "choose another name with -o");
}

Result<void> copy_files(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  fs::create_directories(to, failed);
  if (failed) return cannot(to, failed);
  const std::vector<std::string> names = names_in(from, failed);
  if (failed) return cannot(from, failed);
  for (const std::string& name : names) {
    const fs::path copy = to / name;
    if (auto input = refuse_input(copy)) return std::unexpected(std::move(*input));
    fs::copy_file(from / name, copy, fs::copy_options::overwrite_existing, failed);
    if (failed) return cannot(copy, failed);
  }
  return {};
}

}  // namespace

Result<std::string> prepare_output(const std::string& output, const PerfData& source) {
  std::error_code ignored;
  const std::vector<fs::path> copies =
      source.directory().empty() ? std::vector<fs::path>() : copies_in(source.directory());
  if (copies.empty()) return output;
  if (fs::exists(output, ignored) && !fs::is_directory(output, ignored)) {
    return fail(Code::kBadOption, output, Error::kNoOffset,
                "it is a file, and a recording with copies of kcore becomes a folder",
                "remove it, or choose another name with -o");
  }
  std::string data = (fs::path(output) / "data").string();
  if (auto input = refuse_input(data)) return std::unexpected(std::move(*input));
  for (const fs::path& copy : copies) {
    if (auto ok = copy_files(copy, fs::path(output) / copy.filename()); !ok)
      return std::unexpected(ok.error());
  }
  return data;
}

}  // namespace asof
