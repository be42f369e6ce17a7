// plain_text: names that captures bring (symbols, files, threads, programs), as they may be shown. Whoever recorded the
// capture chose them: a line feed would forge a record, an escape sequence would command the reader's terminal.
#pragma once
#include <string>
#include <string_view>

namespace asof {

// What is shown of a name is no longer than this, in bytes.
inline constexpr size_t kMostPlainBytes = 4096;

// Whether plain_text() changes nothing.
bool is_plain_text(std::string_view text);

// Control characters (U+0000 to U+001F, U+007F to U+009F), characters that change the direction of text (U+200E, U+200F,
// U+202A to U+202E, U+2066 to U+2069), line and paragraph separators and bytes that are not UTF-8 become \xNN, byte by
// byte. What is cut off is told: "[58976 bytes more]". What comes out is plain: once more changes nothing.
std::string plain_text(std::string_view text);

}  // namespace asof
