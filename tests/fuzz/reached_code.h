// Which of the places that clang counts (-fsanitize=fuzzer-no-link: an edge of the control flow each) were reached.
#pragma once
#include <string>

namespace asof::fuzz {

// False: this build counts none.
bool counts_reached_code();
// Takes over what was counted since the last time: counters are bytes, and wrap.
void note_reached_code();
// One line of each place, in the same order for the same program: its address as linked, and 1 where it was reached.
void write_reached_code(const std::string& path);

}  // namespace asof::fuzz
