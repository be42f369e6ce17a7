// All of some bytes to a file descriptor, however many write(2) takes at once. False: errno says why.
#pragma once
#include <string_view>

namespace asof {

bool write_all(int fd, std::string_view bytes);

}  // namespace asof
