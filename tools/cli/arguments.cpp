#include "tools/cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "tools/cli/near_names.h"
#include "tools/cli/verb_table.h"

namespace asof {
namespace {

struct Way {
  std::string_view perf, asof;
};

// Of perf's verbs and options that asof does not have: its own way.
constexpr Way kVerbWays[] = {
    {"annotate", "asof text FUNCTION, or asof decode -F +disasm"},
    {"archive", "asof pack -o FILE"},
    {"dump", "asof events"},
    {"list", "asof report, or asof doctor"},
    {"evlist", "asof report"},
    {"buildid-list", "asof report"},
    {"stat", "asof report, or asof digest"},
    {"top", "asof report"},
    {"trace", "asof timeline, or asof decode --itrace e"},
    {"export", "asof timeline -o FILE.pftrace, or asof query -o FILE.db"},
    {"flamegraph", "asof stacks"},
};
constexpr Way kOptionWays[] = {
    {"--call-trace", "'asof script --call-trace', or 'asof timeline'"},
    {"--insn-trace", "'asof script --insn-trace', or decode -F +insn (bytes) or -F +disasm"},
    {"--graph-function", "'asof script --graph-function', or decode -S FUNCTION"},
    {"-G", "decode without it: asof prints no call chains"},
    {"--hide-call-graph", "decode without it: asof prints no call chains"},
    {"-g", "'asof stacks'"},
    {"--call-graph", "'asof stacks'"},
    {"--children", "'asof stacks'"},
    {"--no-children", "'asof stacks'"},
    {"-s", "'asof query', or a program that reads the text: perf's scripts run inside perf"},
    {"--script", "'asof query', or a program that reads the text: perf's scripts run inside perf"},
    {"--max-blocks", "'asof script --max-blocks'"},
    {"--xed", "'asof script --insn-trace=disasm'"},
    {"-D", "'asof events'"},
    {"--dump-raw-trace", "'asof events'"},
    {"--reltime", "'asof script --reltime'"},
    {"--deltatime", "'asof script --deltatime'"},
    {"--header", "'asof report'"},
    {"--header-only", "'asof report'"},
    {"-I", "'asof report'"},
    {"--show-task-events", "'asof script --show-task-events', or 'asof events --type COMM,FORK,EXIT'"},
    {"--show-mmap-events", "'asof script --show-mmap-events', or 'asof events --type MMAP,MMAP2'"},
    {"--show-switch-events",
     "'asof script --show-switch-events', or 'asof events --type SWITCH,SWITCH_CPU_WIDE'"},
    {"--show-lost-events", "'asof script --show-lost-events', or 'asof events --type LOST,LOST_SAMPLES'"},
    {"--show-bpf-events", "'asof script --show-bpf-events', or 'asof events --type KSYMBOL,BPF_EVENT'"},
    {"--show-namespace-events", "'asof script --show-namespace-events', or 'asof events --type NAMESPACES'"},
    {"--show-cgroup-events", "'asof script --show-cgroup-events', or 'asof events --type CGROUP'"},
    {"--show-round-events", "'asof events --type FINISHED_ROUND'"},
    {"--show-text-poke-events",
     "'asof script --show-text-poke-events', 'asof events --type TEXT_POKE', or 'asof text --history'"},
    {"-a", "none: it is of perf record"},
    {"--all-cpus", "none: it is of perf record"},
    {"-d", "'asof doctor'"},
    {"--debug-mode", "'asof doctor'"},
    {"--gen-script", "'asof query', or a program that reads the text: perf's scripts run inside perf"},
    {"-l", "'asof query --named list': perf's scripts run inside perf"},
    {"--list", "'asof query --named list': perf's scripts run inside perf"},
    {"-L", "'asof query' on sched and irq latencies (--named list)"},
    {"--Latency", "'asof query' on sched and irq latencies (--named list)"},
    {"--show-info", "'asof report'"},
    {"--dump-unsorted-raw-trace", "'asof events'"},
    {"--dlarg", "'asof query', or a program that reads the text"},
    {"--dlfilter", "'asof query', or a program that reads the text"},
    {"--list-dlfilters", "'asof query', or a program that reads the text"},
    {"--demangle-kernel", "no option: names of kernel functions are demangled, too"},
    {"--full-source-path", "'asof decode --source', whose lines have the whole path"},
    {"--addr2line", "no option: lines are read by asof itself"},
    {"--unwind-style", "none: asof has the callers from the trace (--itrace with g), not from stacks"},
    {"--merge-callchains", "none: asof has the callers from the trace (--itrace with g), not from stacks"},
    {"--stitch-lbr", "none: asof has the callers from the trace (--itrace with g)"},
    {"--guest-code", "none: guests are not decoded"},
    {"--per-event-dump", "-F hw:..., -F sw:... and the like, one event at a time, with -o FILE"},
    {"--show-kernel-path", "'asof report' names the files"},
    {"--show-on-off-events", "--time A,B"},
    {"--switch-on", "--time A,B"},
    {"--switch-off", "--time A,B"},
    {"--symbol", "--symbols"},
    {"--demangle", "no option: names are demangled; --no-demangle shows them as the files have them"},
    {"--stdio", "no option: output is text"},
    {"--no-pager", "no option: there is no pager"},
    {"--percent-limit", "report --top N"},
    {"--guestkallsyms", "none: guests are not decoded"},
    {"--guestmodules", "none: guests are not decoded"},
    {"--guestvmlinux", "none: guests are not decoded"},
    {"--guestmount", "none: guests are not decoded"},
};

template <size_t N>
std::string_view way_of(const Way (&ways)[N], std::string_view word) {
  for (const Way& w : ways) {
    if (w.perf == word) return w.asof;
  }
  return {};
}

std::vector<std::string_view> verb_names() {
  std::vector<std::string_view> out;
  for (const VerbEntry& v : verbs()) out.emplace_back(v.name);
  return out;
}

// Where the verb stands behind INPUT, which is given as a word or by -i; 0: nowhere.
size_t verb_behind_input(const std::vector<std::string>& a) {
  const size_t words = a[0] == "-i" || a[0] == "--input" ? 2 : 1;
  const bool input = words == 2 || a[0].starts_with("--input=") || is_input(a[0]);
  return input && a.size() > words && is_verb(a[words]) ? words : 0;
}

// Where the verb stands behind options of all verbs that take no value; 0: nowhere.
size_t verb_behind_flags(const std::vector<std::string>& a) {
  constexpr std::string_view kFlags[] = {"-v", "-vv", "--verbose", "-q", "--quiet"};
  size_t at = 0;
  while (at < a.size() && std::ranges::find(kFlags, a[at]) != std::end(kFlags)) ++at;
  return at < a.size() && is_verb(a[at]) ? at : 0;
}

std::vector<std::string_view> option_names(const CLI::App& verb, std::vector<std::string>& kept) {
  for (const CLI::Option* o : verb.get_options()) {
    for (const std::string& n : o->get_lnames()) kept.push_back("--" + n);
    for (const std::string& n : o->get_snames()) kept.push_back("-" + n);
  }
  return {kept.begin(), kept.end()};
}

// "asof decode, asof report and 12 more have it"; empty: none does.
std::string verbs_with(const CLI::App& verb, const std::string& option) {
  if (verb.get_parent() == nullptr) return {};
  std::vector<std::string> names;
  for (const CLI::App* other : verb.get_parent()->get_subcommands({})) {
    std::vector<std::string> kept;
    const auto options = option_names(*other, kept);
    if (std::ranges::find(options, option) != options.end())
      names.push_back("'asof " + other->get_name() + "'");
  }
  if (names.empty()) return {};
  const size_t more = names.size() > 2 ? names.size() - 2 : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{} {} it", fmt::join(names, more == 0 ? " and " : ", "),
                     more == 0 ? "" : fmt::format(" and {} more", more), names.size() == 1 ? "has" : "have");
}

std::string unknown_option(const CLI::App& verb, const std::string& given) {
  const std::string name = given.substr(0, given.find('='));
  std::string text = fmt::format("asof {}: no option '{}'", verb.get_name(), name);
  if (const std::string_view way = way_of(kOptionWays, name); !way.empty())
    return text + fmt::format("\n  hint: asof's way: {}\n", way);
  std::vector<std::string> kept;
  std::vector<std::string_view> names = option_names(verb, kept);
  std::string near = verbs_with(verb, name);
  if (!near.empty()) near += ";";
  if (near.empty() && name.starts_with("--")) near = did_you_mean(name, names);
  return text + fmt::format("\n  hint: {}{}'asof {} --help' lists all\n", near, near.empty() ? "" : " ",
                            verb.get_name());
}

// CLI11's words for an option without its value, or with several: "--symfs: At Most 1 required but received 2".
std::string number_of_values(const std::string& words) {
  const size_t colon = words.find(": ");
  if (words.ends_with(" missing")) return words.substr(0, colon) + ": its value is missing";
  if (words.find("At Most 1 required") != std::string::npos)
    return words.substr(0, colon) + " is there more than once";
  return words;
}

}  // namespace

bool is_input(const std::string& path) {
  std::error_code ignored;
  return path == "-" || std::filesystem::exists(path, ignored);
}

Result<std::vector<std::string>> normal_arguments(std::vector<std::string> args) {
  if (args.empty()) return args;
  const std::string first = args[0];
  if (first == "help") {
    if (args.size() > 1 && is_verb(args[1])) return std::vector<std::string>{args[1], "--help"};
    return std::vector<std::string>{"--help"};
  }
  if (first == "--version" || first == "-V") return std::vector<std::string>{"version"};
  if (is_verb(first) || first == "--help" || first == "-h") return args;
  if (const size_t at = std::max(verb_behind_input(args), verb_behind_flags(args)); at != 0) {
    std::rotate(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(at),
                args.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    return args;
  }
  // What looks like a path is an input that does not exist.
  const bool word = first[0] != '-' && first.find_first_of("./") == std::string::npos;
  if (word && !is_input(first)) {
    const std::string_view way = way_of(kVerbWays, first);
    const std::string near =
        way.empty() ? did_you_mean(first, verb_names()) : fmt::format("asof's way: {}", way);
    return fail(Code::kBadOption, "", Error::kNoOffset, fmt::format("no verb and no file '{}'", first),
                near.empty() ? "'asof --help' lists the verbs" : near);
  }
  args.insert(args.begin(), "decode");
  return args;
}

std::string explain_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto given = app.get_subcommands();
  if (given.empty() || dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr)
    return fmt::format("asof{}: {}\n  hint: 'asof {} --help' lists the options\n",
                       given.empty() ? "" : " " + given[0]->get_name(),
                       dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr
                           ? error.what()
                           : number_of_values(error.what()),
                       given.empty() ? "" : given[0]->get_name());
  const CLI::App& verb = *given[0];
  const std::vector<std::string> extra = verb.remaining();
  const auto option = std::find_if(extra.begin(), extra.end(),
                                   [](const std::string& e) { return e.size() > 1 && e[0] == '-'; });
  if (option != extra.end()) return unknown_option(verb, *option);
  return fmt::format("asof {}: '{}' is one argument too many\n  hint: 'asof {} --help' shows what it takes\n",
                     verb.get_name(), extra.empty() ? "" : extra.front(), verb.get_name());
}

}  // namespace asof
