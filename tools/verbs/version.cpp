// asof version: of asof and of every library that can change what it prints.
#include <Zydis/Zydis.h>
#include <capstone/capstone.h>
#include <elfutils/version.h>
#include <fmt/core.h>
#include <intel-pt.h>
#include <tbb/version.h>
#include <zstd.h>

#include "tools/cli/verbs.h"
#include "tools/output/output.h"

namespace asof {
namespace {

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
  return kExitOk;
}

}  // namespace

RunVerb add_version(CLI::App& app) {
  app.add_subcommand("version", "versions of asof and of its libraries");
  return [] { return run_version(); };
}

}  // namespace asof
