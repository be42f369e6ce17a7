// The most common uses of each verb: the end of its --help, and EXAMPLES in its manual page.
#include <array>

#include "tools/cli/verb_table.h"

namespace asof {
namespace {

constexpr Example kDecode[] = {
    {"asof decode", "every instruction of ./perf.data, in order of time over all CPUs"},
    {"asof decode --ns -F cpu,time,ip,sym,disasm --time 10%-20%", "a part of it, with disassembly"},
    {"asof decode --itrace b -S vfs_read", "branches in one function"},
    {"asof decode -F +textver,textsrc,conf",
     "which version of the code ran, where it came from, how sure that is"},
    {"asof decode --format jsonl -o trace.jsonl", "one JSON object a line"},
    {"asof decode --format blocks -o trace.blocks",
     "once for all: other verbs read trace.blocks as they read a capture"},
    {"asof decode --text-at first", "with one old state of the text, as other tools see it"},
    {"asof decode --plan plan --shard 3/8 -o parts", "the fourth of eight shards of a plan, anywhere"}};
constexpr Example kQuery[] = {
    {"asof query \"SELECT call.name, count(*), sum(self_instructions) FROM call JOIN "
     "tracks ON tracks.id = track WHERE "
     "tracks.kind = 'cpu' GROUP BY call.name ORDER BY 3 DESC LIMIT 10\"",
     "the functions that execute most"},
    {"asof query \"SELECT text, count(*) FROM instructions GROUP BY text ORDER BY 2 DESC LIMIT 10\"",
     "the instructions that ran most"},
    {"asof query --named syscall-latency --format table", "time in system calls, with percentiles"},
    {"asof query -o capture.db --detail insn", "everything, with instructions, as an SQLite file"},
    {"asof query capture.db \"SELECT count(*) FROM instructions\"", "from that file, without decoding"}};
constexpr Example kTimeline[] = {
    {"asof timeline -o out.pftrace", "for ui.perfetto.dev or any Perfetto viewer"},
    {"asof timeline --html out.html", "a page that any browser opens"},
    {"asof timeline -o out.pftrace.gz --tracks cpu --max-slices 0", "only CPUs, nothing folded, compressed"},
    {"asof timeline -o part.pftrace --detail insn --time 6.00001,6.00002", "down to instructions in a part"},
    {"asof timeline -o out.json", "Chrome's JSON, for viewers that take only that"},
    {"asof timeline -o out.csv", "one line for each slice; .jsonl and .db likewise"}};
constexpr Example kStacks[] = {
    {"asof stacks -o out.folded", "time by stack, for flamegraph.pl, inferno or speedscope"},
    {"asof stacks -o profile.json", "the same, for profiler.firefox.com"},
    {"asof stacks --weight instructions --by thread", "instructions, by thread"},
    {"asof stacks --weight calls --versions", "calls, with the versions of functions' text apart"}};
constexpr Example kDiff[] = {
    {"asof diff perf.data --time 0%-50% --time 50%-100%", "two times of one capture"},
    {"asof diff perf.data perf.data --rows paths --by calls",
     "which call paths were taken how often in two captures"},
    {"asof diff perf.data perf.data --by instructions --format csv", "two captures, as a table"}};
constexpr Example kBranches[] = {
    {"asof branches", "how often each branch was taken, as a table"},
    {"asof branches --format perf-script -o branches.txt", "for llvm-profgen --perfscript"},
    {"asof branches --format bolt-preagg --dso true --base 555555554000 -o bolt.preagg",
     "for perf2bolt --pa, of one program"}};
constexpr Example kCoverage[] = {
    {"asof coverage -o asof.info", "then: genhtml --branch-coverage -o html asof.info"},
    {"asof coverage --touched --versions -o kernel.info", "source files that ran, versions of text apart"},
    {"asof coverage -o asof.drcov", "basic blocks, for Lighthouse"}};
constexpr Example kInject[] = {
    {"asof inject -o out.data", "then: perf report -i out.data"},
    {"asof inject --itrace i10usg -o out.data", "instructions every 10 us, with call chains"},
    {"asof inject --itrace i1000il --autofdo -o out.data",
     "with the branches before each, for create_llvm_prof"}};
constexpr Example kReport[] = {{"asof report", "one screen on ./perf.data"},
                               {"asof report --strict --symfs symfs",
                                "user programs from a copied tree; exit status 3 if anything went wrong"}};
constexpr Example kText[] = {
    {"asof text vfs_read", "all versions of a function"},
    {"asof text vfs_read@6.00005", "what it was at that time"},
    {"asof text vfs_read --diff", "only what changed: old and new code"},
    {"asof text vfs_read --history", "when, by whom, what, from which record"},
    {"asof text --diff start end", "what differs in the whole kernel between begin and end"}};
constexpr Example kScript[] = {
    {"asof script --itrace=i100us,g -o out.perf",
     "for stackcollapse-perf.pl and flamegraph.pl, or speedscope"},
    {"asof script --call-trace -C 0", "who called whom, indented"},
    {"asof script --itrace=b -F +flags --time 10%-20%", "branches with their kinds"},
    {"asof script --insn-trace=disasm --graph-function vfs_read", "what ran in a function and below"},
    {"asof script --itrace=i1000il -F ip,brstack", "the branches before every thousandth instruction"}};
constexpr Example kDoctor[] = {{"asof doctor --symfs symfs", "is everything there that exact decoding needs"},
                               {"asof doctor --format jsonl --symfs symfs", "the same for programs"}};
constexpr Example kEvents[] = {{"asof events --type TEXT_POKE", "recorded changes of kernel text"},
                               {"asof events --type KSYMBOL,BPF_EVENT", "code that came and went"},
                               {"asof events --time 6.0,6.0001", "all records of a tenth of a millisecond"}};
constexpr Example kPackets[] = {
    {"asof packets", "the raw trace, packet by packet"},
    {"asof packets --count", "how many packets of each type, and their bytes"},
    {"asof packets -C 0 --type 'TIP*,FUP,OVF' --time 10%-20%", "addresses of a part of one CPU's trace"},
    {"asof packets --offset 0x100,0x200 --raw", "what these bytes are"},
    {"asof packets -C 0 --flow --time 10%-11%", "with the code that ran because of each packet"},
    {"asof packets --format jsonl -o packets.jsonl", "one JSON object a line"}};
constexpr Example kDigest[] = {{"asof digest", "counts and hash by CPU, to compare two decodes"},
                               {"asof digest -j 1 --fnv", "one thread, with a second kind of hash"}};
constexpr Example kValidate[] = {
    {"asof validate", "what ./perf.data says about itself: does everything fit together"},
    {"asof validate --truth truth --symfs symfs", "how many instructions are right, wrong, missing"},
    {"asof validate --truth truth --symfs symfs --format json", "the same for programs"}};
constexpr Example kPack[] = {
    {"asof pack -o demo.asof.tar.zst", "./perf.data and what decoding it needs, for another machine"},
    {"asof pack --symfs symfs -o demo.asof.tar", "user programs from a copied tree; not compressed"}};
constexpr Example kRecord[] = {
    {"asof record --check", "what this machine lacks for a recording"},
    {"asof record -o trace --seconds 5", "all CPUs' kernel code, under a workload that changes it"},
    {"asof record -o trace --user -- make -j8", "of a command, with user code"}};
constexpr Example kUnpack[] = {{"asof unpack demo.asof.tar.zst -o demo", "its files again"}};
constexpr Example kTablesOf[] = {
    {"asof tables -o lake", "aggregates, changes of text, gaps: lake/agg_function/cpu=0/data.parquet, ..."},
    {"asof tables --table calls -C 0 -o lake", "every call of one CPU"}};
constexpr Example kPlan[] = {
    {"asof plan -o plan", "./perf.data parsed once: plan/core.asof, and plan/plan.json for a scheduler"}};
constexpr Example kMerge[] = {
    {"asof merge plan parts -o whole.blocks", "all parts as one block stream"},
    {"asof merge --strict plan parts -o whole.blocks", "status 3 when a part is missing"}};
constexpr Example kErrors[] = {{"asof errors", "all codes, one a line"},
                               {"asof errors --explain E-FLOW-001", "causes and remedy of one"}};
constexpr Example kCompletion[] = {
    {"asof completion bash >asof.bash", "then: source asof.bash (packages install it)"},
    {"asof completion zsh >_asof", "into a folder of $fpath"},
    {"asof completion fish >asof.fish", "into ~/.config/fish/completions"}};
constexpr Example kVersion[] = {{"asof version", "what to name in a report of a fault"}};

struct Entry {
  std::string_view verb;
  std::span<const Example> examples;
};
constexpr Entry kExamples[] = {
    {"decode", kDecode},     {"timeline", kTimeline}, {"query", kQuery},   {"stacks", kStacks},
    {"branches", kBranches}, {"coverage", kCoverage}, {"diff", kDiff},     {"script", kScript},
    {"inject", kInject},     {"report", kReport},     {"text", kText},     {"doctor", kDoctor},
    {"events", kEvents},     {"packets", kPackets},   {"digest", kDigest}, {"validate", kValidate},
    {"tables", kTablesOf},   {"plan", kPlan},         {"merge", kMerge},   {"record", kRecord},
    {"pack", kPack},         {"unpack", kUnpack},     {"errors", kErrors}, {"completion", kCompletion},
    {"version", kVersion},
};

}  // namespace

std::span<const Example> examples_of(std::string_view verb) {
  for (const Entry& e : kExamples) {
    if (e.verb == verb) return e.examples;
  }
  return {};
}

}  // namespace asof
