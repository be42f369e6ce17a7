// Where a file has code.
#pragma once
#include <vector>

#include "decoder/model/image.h"
#include "textstore/address.h"

namespace asof {

// Offsets in the file, in order: its executable sections, those close to each other as one, and executable segments
// without such sections as a whole. What else is mapped with them, to the end of a page or of the segment, is headers,
// data and padding. Of a file that has it in very many places, from the first to the last. Empty: it has no executable
// segment.
std::vector<AddrRange> code_in_file(const ElfImage& elf);

}  // namespace asof
