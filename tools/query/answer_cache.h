// Tables that were decoded for one query, kept for the next: one file each in a folder of the user.
//
// A file is a database, then what else the answer had (status, notices, names of the tables that have rows, files
// that decoding read), then its size and a mark. Its name is a hash of the key (cache_key.h) and one of its
// content: a file that is cut, damaged, or of something else is not what its name says, and goes. Files are
// written under another name, synchronised, and renamed. The least recently used go when there are too many.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "decoder/io/files_read.h"
#include "decoder/io/notice.h"
#include "tools/query/database.h"

namespace asof {

struct KeptTables {
  std::set<std::string> names;    // tables and columns that were asked for
  bool all = false;               // everything was
  std::set<std::string> indices;  // that there are
  int status = 0;                 // exit status of decoding
  std::vector<Notice> notices;
  std::vector<FileState> files;  // that decoding read beyond those of the key
};
struct FoundTables {
  KeptTables facts;
  Database database;
};

class AnswerCache {
 public:
  // Makes the folder if there is none. An error's `reason` says what is wrong with it: of somebody else, no
  // permission, a link.
  static Result<AnswerCache> open(const std::string& folder, uint64_t most_bytes);
  AnswerCache(AnswerCache&& other) noexcept;
  AnswerCache& operator=(AnswerCache&&) = delete;
  ~AnswerCache();

  std::optional<FoundTables> find(const std::string& key);
  // The bytes that it takes now; 0: it is larger than all that may be kept.
  Result<uint64_t> keep(const std::string& key, const KeptTables& facts, sqlite3* db);

  struct Use {
    uint64_t files = 0, bytes = 0;
  };
  Use use() const;
  const std::string& folder() const { return folder_; }

  // $XDG_CACHE_HOME/asof or ~/.cache/asof; empty: neither is known.
  static std::string default_folder();

 private:
  struct Entry;
  AnswerCache(std::string folder, int fd, uint64_t most) : folder_(std::move(folder)), fd_(fd), most_(most) {}
  std::vector<Entry> entries() const;
  std::optional<FoundTables> read(const std::string& name, const std::string& key);
  Result<std::string> write(const std::string& part, const std::string& key, const KeptTables& facts,
                            sqlite3* db);
  void make_room(const std::string& newest);

  std::string folder_;
  int fd_ = -1;
  uint64_t most_ = 0;
};

}  // namespace asof
