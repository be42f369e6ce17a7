#include "tools/output/csv.h"

#include <csv.h>

namespace asof {

std::string csv_field(std::string_view text) {
  constexpr std::string_view kFormula = "=+-@";
  if (text.size() > 1 && kFormula.contains(text[0])) return csv_field("'" + std::string(text));
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out(2 * text.size() + 2, 0);  // each character may be a quotation mark
  out.resize(csv_write(out.data(), out.size(), text.data(), text.size()));
  return out;
}

}  // namespace asof
