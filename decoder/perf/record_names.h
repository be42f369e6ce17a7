// The names of all types of records that have one.
#pragma once
#include <string>
#include <vector>

namespace asof {

std::vector<std::string> record_type_names();

}  // namespace asof
