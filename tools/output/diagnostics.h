// Diagnostics: everything that goes to standard error in one style. One line per error: stable code, place,
// reason; a hint on the line below, for each code the first time only.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "arch/arch.h"
#include "decoder/io/notice.h"
#include "decoder/model/capture.h"
#include "textstore/result.h"

namespace asof {

// Where nobody reads standard error, nothing is lost that the exit status or the data do not say.
void to_stderr(std::string_view text);

class Diagnostics {
 public:
  enum class Color : uint8_t { kAuto, kAlways, kNever };
  Diagnostics(Color color, int verbosity);  // verbosity: -1 quiet (errors that stop asof only), 0, 1, ...

  void error(const Error& e);
  void notice(const Notice& n);
  // Something the user asked for has no effect. Under --strict, main() makes it an error.
  void warn(const Error& e);
  static bool warned();
  // A gap in the decoded flow: `E-FLOW-001 cpu 3 12.345678901 ip ffffffff81a3c0f4 (sym+0x1): reason`.
  void gap(const Capture& capture, const Stream& stream, const Gap& gap);
  // Plain sentence, prefixed "asof: ".
  void note(const std::string& text);

 private:
  void line(Code code, std::string_view rest, std::string_view hint, uint64_t count = 1);

  bool color_;
  int verbosity_;
  std::set<Code> hinted_;
};

// Does output have colours, by --color and NO_COLOR? `terminal`: it goes to one.
bool wants_color(Diagnostics::Color color, bool terminal);
// "FILE offset 0x1129", or FILE where the offset is Error::kNoOffset.
std::string place_text(const std::string& where, uint64_t offset);
// The line of a gap without the hint; the same text goes into records of `asof decode --itrace=e`.
std::string gap_text(const Capture& capture, const Stream& stream, const Gap& gap);
// "cpu 3" or "tid 4711".
std::string stream_place(const Stream& stream);
// "__schedule+0x114", or empty. User addresses are looked up in the space of the task that ran at `t`.
std::string symbol_text(const Capture& capture, const Stream& stream, Addr a, Time t);
// kTimeMin when neither bound is known.
Time known_time(TimeBounds b);

// The notice that says that the file ends before the recording did; nullptr: none does.
const Notice* early_end(const Capture& capture);

// True for codes that mean "could not follow"; losses in the recording itself (E-LOST) are gaps but no
// errors.
bool is_error_code(Code code);

}  // namespace asof
