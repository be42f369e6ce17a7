// The damage campaign: whole programs over damaged captures, as a stranger's files meet them. Each run is a function of
// its number: one capture is copied, damaged in one or a few places, and given to one verb and format.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/sim_random.h"

namespace asof::fuzz {

// Files of one capture, and which of them is the argument ("": the folder).
struct Sample {
  std::string name, argument;
  std::map<std::string, std::vector<uint8_t>> files;
  bool is_plan = false;
  bool is_checked = false;  // all of its bytes are under a checksum
};

struct Damage {
  std::string done;
  bool must_be_told =
      false;  // all of it is that a file that is read was cut, whose format says how long it is
};

// One to four of: bits flipped, bytes or numbers overwritten, parts removed, repeated, inserted, the end cut off.
Damage damage(std::map<std::string, std::vector<uint8_t>>& files, const std::string& argument,
              test::SimRandom& random);

struct Usage {
  int status = 0;     // negative: ended by that signal
  double cpu = 0;     // seconds
  uint64_t peak = 0;  // bytes of memory
  std::string out, err;
};

struct Limits {
  uint64_t memory = 0;          // bytes of address space; 0: none, as sanitizers need
  uint64_t cpu = 120;           // seconds, after which the kernel ends it: a finding
  uint64_t peak = 256U << 20U;  // bytes of memory it may take for files of some ten KB: more is a finding
};

// `folder`: standard output and error go there, temporary files to its `tmp`.
Usage run_program(const std::vector<std::string>& arguments, const std::filesystem::path& folder,
                  const Limits& limits);

// What is wrong with how a run in `folder` ended; empty: nothing.
std::string fault_of(const Usage& usage, const Damage& damage, const std::filesystem::path& folder);

// A code, or the verb that has them.
bool tells_of_something(const Usage& usage);

// What of its output must be the same where nothing is told of damage to such a capture.
bool prints_figures(const std::string& command);

// Arguments of each verb and format. IN: the capture, OUT: a file or folder that is to be written, DIR: its folder.
const std::vector<std::string>& damage_commands();

}  // namespace asof::fuzz
