// What a recording says of a time, before and after more of it came: the check that what was decoded in between is what
// the whole recording gives.
#pragma once
#include <optional>
#include <string>

#include "decoder/model/capture.h"

namespace asof {

// What is different up to `until`, as a sentence for people; nullopt: nothing that decoding, names or tasks depend on.
// The user code of a process may become known where nothing was known: nothing ran there before it was mapped.
std::optional<std::string> past_difference(const Capture& before, const Capture& now, Time until);

// The same of the bytes of text alone; `user`: of processes too.
std::optional<std::string> text_difference(const TextStore& before, const TextStore& now, Time until,
                                           bool user);

}  // namespace asof
