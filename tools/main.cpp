// asof: the program. Finds the verb, lets CLI11 read its options, and ends with the verb's exit status.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

#include "decoder/io/files_read.h"
#include "decoder/io/thrown_error.h"
#include "decoder/lines/debuginfod.h"
#include "decoder/open/archive.h"
#include "tools/cli/arguments.h"
#include "tools/cli/help_format.h"
#include "tools/cli/sandbox.h"
#include "tools/cli/verb_table.h"
#include "tools/output/diagnostics.h"
#include "tools/output/output.h"
#include "tools/query/answer_cache.h"

namespace {

using namespace asof;

constexpr const char* kFooter = R"(Most used:
  asof perf.data                       instructions as text
  asof report                          what is in ./perf.data, how much was decoded, what was lost and why
  asof timeline --html out.html        calls in time, down to instructions, in any browser
  asof doctor                          is everything there that exact decoding needs
  asof text __schedule@12.345678       the bytes of a function at that time
'asof VERB --help' gives options and examples, 'man asof' more. Exit status: 0 ok, 1 usage, 2 input unusable,
3 decoded with errors under --strict or above --max-errors, 4 internal, 5 missing text blocked all decoding,
130 interrupted (partial output is valid). asof confines itself (Landlock, seccomp); --no-sandbox leaves that out.)";

bool asks_servers(const CLI::App& verb) {
  const CLI::Option* const option = verb.get_option_no_throw("--debuginfod");
  return option != nullptr && option->count() != 0;
}

// An option for a file that was given without a name, as by an empty variable; nullptr: none.
const char* option_without_name(const CLI::App& verb) {
  for (const char* name : {"--output", "--html"}) {
    const CLI::Option* const option = verb.get_option_no_throw(name);
    if (option != nullptr && std::ranges::any_of(option->results(), &std::string::empty)) return name;
  }
  return nullptr;
}

int no_name_for(const char* option) {
  Diagnostics(Diagnostics::Color::kAuto, 0)
      .error(
          {Code::kBadOption, option, Error::kNoOffset, "a file without a name", "was a variable not set?"});
  return kExitUsage;
}

// What a verb may write: what its options name, the cache of queries, and temporary files.
std::vector<std::string> writable_paths(const CLI::App& verb) {
  std::vector<std::string> out;
  const auto add_value = [&](const char* name) {
    const CLI::Option* const option = verb.get_option_no_throw(name);
    if (option == nullptr) return false;
    for (const std::string& path : option->results()) {
      out.push_back(path);
      const bool device = std::filesystem::exists(path) && !std::filesystem::is_regular_file(path);
      if (!device) out.push_back(std::filesystem::absolute(path).parent_path());
    }
    return option->count() != 0;
  };
  add_value("--html");
  const std::string& name = verb.get_name();
  // These write without being told where.
  if (!add_value("--output") && (name == "timeline" || name == "pack" || name == "unpack"))
    out.emplace_back(".");
  if (verb.get_option_no_throw("--cache-dir") != nullptr && !add_value("--cache-dir"))
    out.push_back(AnswerCache::default_folder());
  if (asks_servers(verb)) {
    // Made here: of a folder that is not there yet, the one above it could be written to.
    const std::string cache = Debuginfod::cache_folder();
    std::error_code failed;
    if (!cache.empty() && (std::filesystem::create_directories(cache, failed), !failed)) out.push_back(cache);
  }
  for (const char* name : {"TMPDIR", "SQLITE_TMPDIR"}) {
    if (const char* place = std::getenv(name)) out.emplace_back(place);
  }
  for (const char* place : {"/var/tmp", "/usr/tmp", "/tmp"}) out.emplace_back(place);
  std::erase(out, "");
  return out;
}

// Whoever reads the first lines of it only has what they want.
int print_help(const CLI::App& app, const CLI::ParseError& asked) {
  std::ostringstream text, nothing;
  app.exit(asked, text, nothing);
  Output out = Output::to(STDOUT_FILENO, "standard output");
  out.write(text.str());
  return out.finish() ? kExitOk : kExitInput;
}

// The verbs and their options. To add those of all verbs takes a millisecond or two.
struct CommandLine {
  // `only`: that verb; empty: all of them.
  explicit CommandLine(std::string_view only) {
    app.footer(kFooter);
    app.formatter(std::make_shared<HelpFormat>());  // before the verbs, which inherit it
    app.require_subcommand(1);
    runners = add_verbs(app, only);
  }
  CLI::App app{"asof - decode Intel PT and Arm CoreSight traces against the text that was live at the time",
               "asof"};
  std::vector<RunVerb> runners;
};

int run_verb(const CommandLine& line, bool unconfined) {
  const CLI::App& verb = *line.app.get_subcommands().at(0);
  if (const char* const option = option_without_name(verb)) return no_name_for(option);
  // What record starts has much to do.
  if (!unconfined && verb.get_name() != "record")
    enter_sandbox(writable_paths(verb), asks_servers(verb) ? Network::kAsClient : Network::kNo);
  const auto entry = std::ranges::find(verbs(), verb.get_name(), &VerbEntry::name);
  const ExitCode code = line.runners[static_cast<size_t>(entry - verbs().begin())]();
  const CLI::Option* const strict = verb.get_option_no_throw("--strict");
  return code == kExitOk && strict != nullptr && strict->count() != 0 && Diagnostics::warned() ? kExitErrors
                                                                                               : code;
}

int run(int argc, char** argv) {
  if (argc == 1) {
    to_stderr(CommandLine({}).app.help());
    return kExitUsage;
  }
  // Wherever it stands: in front of the verb, it would be an option of the default one.
  std::vector<std::string> given{argv + 1, argv + argc};
  const bool unconfined = std::erase(given, "--no-sandbox") != 0;
  auto args = normal_arguments(std::move(given));
  if (!args) {
    to_stderr(fmt::format("asof: {}\n  hint: {}\n", args.error().reason, args.error().hint));
    return kExitUsage;
  }
  // Without arguments but --no-sandbox, what CLI11 says names no verb.
  const std::string verb = args->empty() || args->front() == "completion" ? "" : args->front();
  std::reverse(args->begin(), args->end());  // the order CLI11 takes a vector in
  std::unique_ptr<CommandLine> line;
  const auto read = [&](std::string_view only) {
    line = std::make_unique<CommandLine>(is_verb(only) ? only : "");
    line->app.parse(std::vector(*args));
  };
  try {
    read(verb);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return print_help(line->app, e);
    try {
      read({});  // another verb may have the option
    } catch (const CLI::ParseError& again) {
      to_stderr(explain_parse_error(line->app, again));
      return kExitUsage;
    }
  }
  return run_verb(*line, unconfined);
}

// What a verb printed may have been lost: then no verb succeeded. Nor is it whole where it was interrupted,
// whatever the verb says.
int checked(int status) {
  if (interrupted()) {
    Diagnostics(Diagnostics::Color::kAuto, 0)
        .note("interrupted: what was written is valid, but of a part of the trace only");
    status = kExitInterrupted;
  }
  std::optional<Error> failure = Output::take_failure();
  if (!failure) return status;
  Diagnostics(Diagnostics::Color::kAuto, 0).error(*failure);
  return status == kExitOk ? kExitInput : status;
}

Error no_resources(const char* what) {
  return {Code::kNoResources, what, Error::kNoOffset, "the system refused memory or a thread",
          "fewer threads (-j), less memory for results (--max-mem), or a part of the capture (--time, -C)"};
}

int refused(const Error& error) {
  Diagnostics(Diagnostics::Color::kAuto, 0).error(error);
  return kExitInput;
}

// Where an exception has no way up: in a thread of a library, in a destructor.
[[noreturn]] void end_without_memory() {
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const std::bad_alloc&) {
    constexpr std::string_view kText = "asof: E-FILE-093: the system refused memory\n";
    if (::write(STDERR_FILENO, kText.data(), kText.size()) >= 0) _exit(kExitInput);
  } catch (...) {
    std::abort();
  }
  std::abort();
}

pid_t in_main = 0;  // the process, while it runs

// A library ends the process: libarchive does where it has no memory for a name.
void ended_by_library() {
  if (in_main != ::getpid()) return;
  TemporaryTree::remove_all();
  constexpr std::string_view kText = "asof: E-FILE-093: the system refused memory\n";
  if (::write(STDERR_FILENO, kText.data(), kText.size()) >= 0) _exit(kExitInput);
}

int run_guarded(int argc, char** argv) {
  try {
    return checked(run(argc, argv));
  } catch (const std::bad_alloc&) {
    return refused(no_resources("memory"));
  } catch (const ThrownError& e) {
    return refused(e.error());
  } catch (const std::system_error& e) {
    const bool threads = e.code() == std::errc::resource_unavailable_try_again;
    if (threads || e.code() == std::errc::not_enough_memory)
      return refused(no_resources(threads ? "threads" : "memory"));
    to_stderr(fmt::format("asof: internal error: {}\n", e.what()));
    return asof::kExitInternal;
  } catch (const std::exception& e) {
    to_stderr(fmt::format("asof: internal error: {}\n", e.what()));
    return asof::kExitInternal;
  }
}

}  // namespace

int main(int argc, char** argv) {
  install_signal_handlers();
  FilesRead::remember_inputs();
  std::set_terminate(end_without_memory);
  std::atexit(ended_by_library);
  in_main = ::getpid();
  const int status = run_guarded(argc, argv);
  in_main = 0;
  return status;
}
