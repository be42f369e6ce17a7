// What --fields and --itrace of `asof decode` take, for the verb and for completion.
#pragma once
#include <array>
#include <string_view>

namespace asof {

// The bit of each Field is its place here.
inline constexpr std::array<std::string_view, 18> kFieldWords{
    "comm", "pid",     "tid",    "cpu",   "time",    "ip",      "sym",  "symoff",  "dso",
    "insn", "insnlen", "disasm", "flags", "textver", "textsrc", "conf", "srcline", "inline"};

// perf's letters; the bit of each Kind is its place here.
inline constexpr std::string_view kItraceLetters = "ibcrexwpIo";

}  // namespace asof
