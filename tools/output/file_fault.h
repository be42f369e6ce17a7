// A file of the capture that becomes shorter while it is read.
//
// Captures are mapped into memory, and reading a page behind the end of a mapped file is SIGBUS. Reading with
// pread() instead would copy every byte of trace and text once more, for a case in which nothing can be saved:
// text was looked up in the file since it was opened, and what it said before may have been other bytes too.
// So the program ends, with a code, and the name of the file.
#pragma once

namespace asof {

void install_fault_handler();

}  // namespace asof
