// What is in a folder, in order of names. Not by std::filesystem's iterators: without memory for a name, libstdc++'s end the process.
#pragma once
#include <functional>
#include <string>
#include <system_error>
#include <vector>

namespace asof {

// Without "." and "..".
std::vector<std::string> names_in(const std::string& folder, std::error_code& error);
// The same with the folder's path before each.
std::vector<std::string> paths_in(const std::string& folder, std::error_code& error);
// Of everything below, but folders, until `take` gives false. Links to folders are not followed, and what may not be read is passed
// over.
void walk_files(const std::string& root, const std::function<bool(const std::string& path)>& take);

}  // namespace asof
