// asof record: runs the script that records this machine (tools/record), whatever is installed where.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tools/cli/verbs.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

struct RecordText {
  std::string output, seconds, seed, trigger;
  bool check = false, restore = false, user = false, no_validate = false;
  std::vector<std::string> command;
};

struct Place {
  fs::path script, programs;
};

// Beside an installed asof, in ../libexec/asof; of one that was built in the project's tree, in that tree.
Result<Place> find_script() {
  utsname machine{};
  ::uname(&machine);
  const char* const name = std::string_view(machine.machine) == "aarch64" ? "record-cs" : "record-pt";
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const Place places[] = {
      {folder.parent_path() / "libexec/asof" / name, folder.parent_path() / "libexec/asof"},
      {folder.parent_path().parent_path() / "tools/record" / name, folder / "record"}};
  for (const Place& p : places) {
    if (fs::exists(p.script, error)) return p;
  }
  return fail(Code::kCannotReadInput, places[0].script, Error::kNoOffset,
              "the script that records is not there",
              "install the package asof; docs/recording.md says what to do by hand");
}

std::vector<std::string> words_of(const RecordText& o) {
  std::vector<std::string> words;
  if (o.check) words.emplace_back("--check");
  if (o.restore) words.emplace_back("--restore");
  if (o.user) words.emplace_back("--user");
  if (o.no_validate) words.emplace_back("--no-validate");
  for (const auto& [option, value] : {std::pair("-o", &o.output), std::pair("--seconds", &o.seconds),
                                      std::pair("--seed", &o.seed), std::pair("--trigger", &o.trigger)}) {
    if (!value->empty()) words.insert(words.end(), {option, *value});
  }
  if (!o.command.empty()) words.emplace_back("--");
  words.insert(words.end(), o.command.begin(), o.command.end());
  return words;
}

// Returns only where the script cannot be started.
ExitCode run_record(const RecordText& o) {
  Diagnostics diagnostics(Diagnostics::Color::kAuto, 0);
  if (o.output.empty() && !o.check && !o.restore) {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset, "a recording needs a folder",
                       "-o DIR; --check records nothing"});
    return kExitUsage;
  }
  const auto place = find_script();
  if (!place) {
    diagnostics.error(place.error());
    return kExitInput;
  }
  ::setenv("ASOF", fs::read_symlink("/proc/self/exe").c_str(), 0);
  ::setenv("RECORD_TOOLS", place->programs.c_str(), 0);
  std::vector<std::string> words = words_of(o);
  words.insert(words.begin(), place->script);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  ::execv(place->script.c_str(), argv.data());
  diagnostics.error({Code::kCannotReadInput, place->script, Error::kNoOffset, std::strerror(errno), {}});
  return kExitInput;
}

}  // namespace

RunVerb add_record(CLI::App& app) {
  auto o = std::make_shared<RecordText>();
  CLI::App* verb =
      app.add_subcommand("record", "records this machine with all that exact decoding needs, as root");
  verb->add_option("-o,--output", o->output, "folder for the recording; its archive is DIR.asof.tar.zst")
      ->type_name("DIR");
  verb->add_option("--seconds", o->seconds,
                   "how long the workload runs (default: 5), or --trigger is waited for (default: 60)")
      ->type_name("S");
  verb->add_option("--seed", o->seed, "of the workload")->type_name("N");
  verb->add_option(
          "--trigger", o->trigger,
          "keep what ran before this function runs, and end then: of the kernel, or FILE:SYM of a program")
      ->type_name("SYM");
  verb->add_flag("--user", o->user, "user code, too");
  verb->add_flag("--no-validate", o->no_validate, "pack it, but do not validate the archive");
  verb->add_flag("--check", o->check, "say what this machine lacks; record nothing");
  verb->add_flag("--restore", o->restore, "put back what a recording that was killed left switched on");
  verb->add_option("command", o->command,
                   "what to record, after --; by default a workload that changes kernel text");
  return [o] { return run_record(*o); };
}

}  // namespace asof
