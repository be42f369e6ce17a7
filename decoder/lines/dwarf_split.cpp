#include "decoder/lines/dwarf_split.h"

#include <dwarf.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "decoder/lines/dwarf_file.h"

namespace asof {
namespace {

std::string_view attribute_text(Dwarf_Die& die, unsigned name) {
  Dwarf_Attribute attribute;
  const char* text = dwarf_formstring(dwarf_attr(&die, name, &attribute));
  return text == nullptr ? std::string_view() : std::string_view(text);
}

std::string_view dwo_name(Dwarf_Die& die) {
  const std::string_view name = attribute_text(die, DW_AT_dwo_name);
  return name.empty() ? attribute_text(die, DW_AT_GNU_dwo_name) : name;
}

// As __libdw_filepath() of elfutils puts them together. Empty: libdw opens nothing.
std::string joined(const std::string& folder, std::string_view directory, std::string_view name) {
  if (name.starts_with('/')) return std::string(name);
  if (directory.starts_with('/')) return fmt::format("{}/{}", directory, name);
  if (folder.empty()) return {};
  return directory.empty() ? fmt::format("{}{}", folder, name)
                           : fmt::format("{}{}/{}", folder, directory, name);
}

}  // namespace

// The real one: libdw looks its descriptor up, so links to the file lead to where the file is.
DwarfSplit::DwarfSplit(int file) {
  if (file < 0) return;
  std::error_code error;
  const auto path = std::filesystem::canonical(fmt::format("/proc/self/fd/{}", file), error);
  if (!error && path.has_parent_path()) folder_ = path.parent_path().string() + "/";
  if (folder_ == "//") folder_ = "/";
}

// A file that is not there is not opened.
bool DwarfSplit::may_be_read(const std::string& path, bool& there) {
  if (path.empty()) return true;
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found || error)
    return true;
  there = true;
  const auto ok = check_split_file(path);
  if (!ok && problem_.empty()) problem_ = fmt::format("{}: {}", path, ok.error().reason);
  return ok.has_value();
}

std::optional<Dwarf_Die> DwarfSplit::of(Dwarf_Die& unit) {
  Dwarf_Half version = 0;
  uint8_t type = 0;
  if (dwarf_cu_info(unit.cu, &version, &type, nullptr, nullptr, nullptr, nullptr, nullptr) != 0 ||
      type != DW_UT_skeleton)
    return std::nullopt;
  const std::string_view name = dwo_name(unit);
  bool there = false;
  for (const std::string_view directory : {std::string_view(), attribute_text(unit, DW_AT_comp_dir)}) {
    if (!may_be_read(joined(folder_, directory, name), there)) return std::nullopt;
  }
  Dwarf_Die split{};
  if (there && dwarf_cu_info(unit.cu, nullptr, nullptr, nullptr, &split, nullptr, nullptr, nullptr) == 0 &&
      split.addr != nullptr)
    return split;
  if (problem_.empty())
    problem_ = fmt::format("functions of a unit are in {}, which {}", name,
                           there ? "is not the file of this unit" : "is not there");
  return std::nullopt;
}

std::string DwarfSplit::take_problem() {
  if (problem_.empty() || std::exchange(reported_, true)) return {};
  return std::exchange(problem_, {});
}

}  // namespace asof
