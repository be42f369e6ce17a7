#include "tools/query/rows.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <set>

#include "textstore/plain_text.h"
#include "tools/output/csv.h"
#include "tools/output/json.h"

namespace asof {
namespace {

constexpr size_t kMostWaiting = 1000;

std::string hex(const uint8_t* bytes, size_t size) {
  std::string out;
  out.reserve(size * 2);
  for (size_t i = 0; i < size; ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}

constexpr size_t kPiece = 1024;

// Names come from the traced machine: what a terminal obeys, and what ends a cell or a line, is shown as in C.
std::string visible(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t special = text.find_first_of("\t\n\r\\");
    size_t size = std::min({special, text.size(), kPiece});
    if (size == kPiece) {  // between characters
      while (size > kPiece - 4 && (text[size - 1] & 0xc0) == 0x80) --size;
      if (size > kPiece - 4 && (text[size - 1] & 0xc0) == 0xc0) --size;
    }
    out += plain_text(text.substr(0, size));
    text.remove_prefix(size);
    if (size != special) continue;
    out += text[0] == '\t' ? "\\t" : text[0] == '\n' ? "\\n" : text[0] == '\r' ? "\\r" : "\\\\";
    text.remove_prefix(1);
  }
  return out;
}

// In characters: bytes that continue one of UTF-8 have no width.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string_view column_text(sqlite3_stmt* s, int column) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(s, column));
  return text == nullptr ? std::string_view()
                         : std::string_view(text, static_cast<size_t>(sqlite3_column_bytes(s, column)));
}

}  // namespace

RowPrinter::Row RowPrinter::names(sqlite3_stmt* s) const {
  Row row;
  std::set<std::string> used;
  for (int i = 0; i < sqlite3_column_count(s); ++i) {
    const char* const name = sqlite3_column_name(s, i);
    std::string text = name == nullptr ? "" : name;
    // An object has each key once.
    if (format_ == RowFormat::kJsonLines) {
      const std::string same = text;
      for (int n = 2; !used.insert(text).second; ++n) text = fmt::format("{}_{}", same, n);
      std::string quoted;
      put_json_string(quoted, text);
      text = quoted;
    } else if (format_ == RowFormat::kCsv) {
      text = csv_field(text);
    } else {
      text = visible(text);
    }
    row.push_back({text, false});
  }
  return row;
}

// NULL is an empty cell, null in JSON; an empty text is "" in CSV. Bytes are hexadecimal digits.
RowPrinter::Cell RowPrinter::cell(sqlite3_stmt* s, int column) const {
  const bool json = format_ == RowFormat::kJsonLines;
  const int type = sqlite3_column_type(s, column);
  if (type == SQLITE_NULL) return {json ? "null" : "", false};
  if (type == SQLITE_INTEGER || type == SQLITE_FLOAT) {
    std::string text(column_text(s, column));
    if (json && type == SQLITE_FLOAT && text.find_first_of("In") != std::string::npos)
      text = text.front() == '-' ? "-1e999" : "1e999";  // JSON has no infinity
    return {text, true};
  }
  std::string text;
  if (type == SQLITE_BLOB) {
    const auto* bytes = static_cast<const uint8_t*>(sqlite3_column_blob(s, column));
    text = hex(bytes, bytes == nullptr ? 0 : static_cast<size_t>(sqlite3_column_bytes(s, column)));
  } else {
    text = column_text(s, column);
  }
  if (json) {
    std::string quoted;
    put_json_string(quoted, text);
    return {quoted, false};
  }
  if (format_ == RowFormat::kCsv) return {text.empty() ? "\"\"" : csv_field(text), false};
  return {visible(text), false};
}

void RowPrinter::json_line(const Row& keys, const Row& row) {
  std::string text = "{";
  for (size_t i = 0; i < row.size(); ++i) text += (i == 0 ? "" : ",") + keys[i].text + ":" + row[i].text;
  out_.write(text + "}\n");
}

void RowPrinter::table_line(const Row& row) {
  std::string text;
  for (size_t i = 0; i < row.size(); ++i) {
    const size_t width = width_of(row[i].text);
    const std::string pad(widths_[i] - std::min(widths_[i], width), ' ');
    text += (i == 0 ? "" : "  ") + (row[i].number ? pad + row[i].text : row[i].text + pad);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  out_.write(text + "\n");
}

void RowPrinter::show_waiting() {
  widths_.assign(waiting_.empty() ? 0 : waiting_.front().size(), 0);
  for (const Row& row : waiting_) {
    for (size_t i = 0; i < row.size(); ++i) widths_[i] = std::max(widths_[i], width_of(row[i].text));
  }
  // A name stands over numbers as they do.
  if (waiting_.size() > 1) {
    for (size_t i = 0; i < widths_.size(); ++i) {
      waiting_[0][i].number =
          std::any_of(waiting_.begin() + 1, waiting_.end(), [&](const Row& row) { return row[i].number; }) &&
          std::all_of(waiting_.begin() + 1, waiting_.end(),
                      [&](const Row& row) { return row[i].number || row[i].text.empty(); });
    }
  }
  for (const Row& row : waiting_) table_line(row);
  waiting_.clear();
}

void RowPrinter::line(const Row& row, bool header) {
  if (format_ == RowFormat::kTable) {
    if (header) widths_.clear();
    if (!widths_.empty()) return table_line(row);
    waiting_.push_back(row);
    if (waiting_.size() > kMostWaiting) show_waiting();
    return;
  }
  std::string text;
  for (size_t i = 0; i < row.size(); ++i)
    text += (i == 0 ? "" : format_ == RowFormat::kCsv ? "," : "\t") + row[i].text;
  out_.write(text + "\n");
}

int RowPrinter::print(sqlite3_stmt* s) {
  const int columns = sqlite3_column_count(s);
  const Row keys = names(s);
  if (columns != 0 && format_ == RowFormat::kTable && printed_) out_.write("\n");
  printed_ = printed_ || columns != 0;
  if (columns != 0 && format_ != RowFormat::kJsonLines) line(keys, true);
  int status = SQLITE_DONE;
  while (!out_.closed() && (status = sqlite3_step(s)) == SQLITE_ROW) {
    Row row;
    row.reserve(keys.size());
    for (int i = 0; i < columns; ++i) row.push_back(cell(s, i));
    if (format_ == RowFormat::kJsonLines) {
      json_line(keys, row);
    } else {
      line(row, false);
    }
  }
  if (!waiting_.empty()) show_waiting();
  return status == SQLITE_ROW ? SQLITE_DONE : status;
}

}  // namespace asof
