// asof version: of asof and of every library that can change what it prints.
#include <Zydis/Zydis.h>
#include <capstone/capstone.h>
#include <elfutils/version.h>
#include <fmt/core.h>
#include <intel-pt.h>
#include <tbb/version.h>
#include <zstd.h>

#include <filesystem>

#include "tools/cli/sandbox.h"
#include "tools/cli/verbs.h"
#include "tools/output/format.h"
#include "tools/output/output.h"
#include "tools/query/query_cache.h"

namespace asof {
namespace {

// Where tables of queries are kept, and how much of them. Makes no folder.
std::string cache_text() {
  const CacheOptions defaults;
  const std::string folder = cache_folder(defaults);
  if (folder.empty() || cache_mode(defaults) == CacheMode::kNever) return "off";
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) return folder + " (empty)";
  const auto cache = AnswerCache::open(folder, defaults.most_bytes);
  if (!cache) return fmt::format("{} (not used: {})", folder, cache.error().reason);
  const AnswerCache::Use use = cache->use();
  return fmt::format("{} ({}, {} of {})", folder, format_plural(use.files, "file", "files"),
                     format_size(use.bytes), format_size(defaults.most_bytes));
}

ExitCode run_version() {
  auto out = Output::open("-");
  if (!out) return kExitInput;
  out->write(fmt::format("asof {}\n", ASOF_VERSION));
  const pt_version ipt = pt_library_version();
  out->write(fmt::format("libipt {}.{}.{}\n", ipt.major, ipt.minor, ipt.build));
  int major = 0;
  int minor = 0;
  cs_version(&major, &minor);
  out->write(fmt::format("capstone {}.{}\n", major, minor));
  const uint64_t zydis = ZydisGetVersion();
  out->write(fmt::format("zydis {}.{}.{}\n", ZYDIS_VERSION_MAJOR(zydis), ZYDIS_VERSION_MINOR(zydis),
                         ZYDIS_VERSION_PATCH(zydis)));
  out->write(fmt::format("elfutils {}.{}\n", _ELFUTILS_VERSION / 1000, _ELFUTILS_VERSION % 1000));
  out->write(fmt::format("onetbb {}\n", TBB_runtime_version()));
  out->write(fmt::format("zstd {}\n", ZSTD_versionString()));
  out->write(fmt::format("fmt {}.{}.{}\n", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
  out->write(fmt::format("cache {}\n", cache_text()));
  out->write(fmt::format("sandbox {}\n", try_sandbox().text()));
  return kExitOk;
}

}  // namespace

RunVerb add_version(CLI::App& app) {
  app.add_subcommand("version", "versions of asof and of its libraries");
  return [] { return run_version(); };
}

}  // namespace asof
