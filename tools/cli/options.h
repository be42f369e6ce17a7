// Options that verbs share, with the names perf users know, and what they are converted to.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tools/disasm/source_text.h"
#include "tools/output/diagnostics.h"

namespace asof {

// What to open and how to report on it.
struct InputOptions {
  std::string input = "perf.data";
  CaptureOptions capture;
  bool no_demangle = false;
  bool debuginfod = false;
  bool quiet = false;
  int verbose = 0;
  Diagnostics::Color color = Diagnostics::Color::kAuto;

  Diagnostics diagnostics() const { return Diagnostics(color, quiet ? -1 : verbose); }
};
// With the positional INPUT unless the verb has positionals of its own.
void add_input_options(CLI::App& verb, InputOptions& options, bool positional_input = true);

// For verbs that can show source lines: --source, --inline; and --debuginfod, which alone opens the network to asof.
void add_source_options(CLI::App& verb, InputOptions& options, SourceChoice& choice);
void add_debuginfod_option(CLI::App& verb, InputOptions& options);

enum class ProgressMode : uint8_t { kAuto, kAlways, kNever };

// How to decode.
struct DecodeChoice {
  PipelineOptions pipeline;
  std::string cpus;
  ProgressMode progress = ProgressMode::kAuto;
  uint64_t max_errors = UINT64_MAX;
  bool strict = false;
};
// Threads are those of opening too.
void add_decode_options(CLI::App& verb, DecodeChoice& choice, CaptureOptions& capture);

// Words for values, as CLI::IsMember shows and refuses them: completion reads the words there (option_tree.h).
// CLI::CheckedTransformer's message has the values' bytes in it, and numbers would be taken as well.
template <class T>
CLI::Validator one_of(const std::map<std::string, T>& values) {
  std::string words;
  for (const auto& [word, value] : values) words += (words.empty() ? "{" : ",") + word;
  words += "}";
  return CLI::Validator(
      [values, words](std::string& text) {
        const auto found = values.find(text);
        if (found == values.end()) return text + " not in " + words;
        text = std::to_string(static_cast<int>(found->second));
        return std::string();
      },
      words);
}

// For numbers and sizes: CLI11 takes -1 for the largest there is. As the last transform(), which is the first to look.
CLI::Validator not_negative();

// -o of verbs that write to standard output without it, and --time of those that can take a part.
void add_output_option(CLI::App& verb, std::string& path);
// For verbs without decode options: warnings are errors.
void add_strict_option(CLI::App& verb);
void add_time_option(CLI::App& verb, std::string& time);

// "0,2-5" -> {0,2,3,4,5}. An error for anything else, and for lists of more than 64 k numbers.
Result<std::vector<int>> parse_number_list(const std::string& text, const std::string& option);
// "SHIFT,MULT,ZERO", decimal.
Result<TimeConversion> parse_time_conversion(const std::string& text);
// "a,b,c" -> {"a","b","c"}; empty parts are dropped.
std::vector<std::string> split_list(const std::string& text);
// The same of names of functions, in which commas within <>, () and [] do not separate.
std::vector<std::string> split_names(const std::string& text);
// Hexadecimal with or without 0x.
std::optional<uint64_t> parse_hex(std::string_view text);
// perf's seconds: "12.345678901" -> ns. Nothing after the digits is allowed.
std::optional<Time> parse_seconds(std::string_view text);
// "A,B" in seconds, either may be missing, or "10%-20%" of `whole`.
Result<TimeBounds> parse_time_range(const std::string& text, TimeBounds whole);

}  // namespace asof
