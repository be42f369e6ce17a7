// Task facts in time order to spaces, mappings and layers.
#include "decoder/user_text/user_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/user_text/code_in_file.h"

namespace asof {
namespace {

Time just_before(Time t) { return t == kTimeMin ? kTimeMin : t - 1; }

}  // namespace

bool UserText::has_no_file(std::string_view name) {
  if (name == "[vdso]") return false;
  for (std::string_view prefix : {"[", "//", "/dev/zero", "/dev/shm/", "/memfd:", "/SYSV",
                                  "anon_inode:", "/anon_hugepage", "socket:"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name.empty();
}

UserText::UserText(const SideBand& side, std::span<const BuildIdEntry> build_ids, FileFinder& files,
                   JitFiles& jits, Builder& builder, NoticeBook& notices)
    : side_(side), files_(files), jits_(jits), builder_(builder), notices_(notices) {
  for (const BuildIdEntry& entry : build_ids) {
    std::string id = normal_build_id(entry.build_id);
    const auto [known, fresh] = header_ids_.try_emplace(entry.filename, id);
    if (!fresh && !same_build_id(known->second, id)) several_ids_.insert(entry.filename);
  }
}

size_t UserText::new_process(int32_t pid, Time t) {
  Process process;
  process.space = builder_.add_space();
  process.pid = pid;
  process.last_map = t;
  processes_.push_back(std::move(process));
  spaces_of_[pid].push_back({t, processes_.size() - 1, processes_.back().space});
  return processes_.size() - 1;
}

size_t UserText::process_of(int32_t pid) {
  auto changes = spaces_of_.find(pid);
  return changes != spaces_of_.end() ? changes->second.back().process : new_process(pid, kTimeMin);
}

// A child inherits the layers its parent has when it is made, so everything is added in the order of time.
void UserText::add_text() {
  open_jits();
  for (const TaskFact& fact : side_.tasks) {
    jits_until(fact.time);
    switch (fact.kind) {
      case TaskFact::Kind::kMap:
      case TaskFact::Kind::kUnmap:
        map(fact);
        break;
      case TaskFact::Kind::kExec:
        new_process(fact.pid, fact.time);
        break;
      case TaskFact::Kind::kFork:
        fork(fact);
        break;
      case TaskFact::Kind::kComm:
      case TaskFact::Kind::kExit:
        break;
    }
  }
  jits_until(kTimeMax);
  add_undated_jits();
}

// A thread of the same process shares its space; of a synthesised fork the mappings follow as records of
// their own.
void UserText::fork(const TaskFact& fact) {
  if (fact.pid == fact.parent_pid || fact.time == kTimeMin) return;
  auto parent = spaces_of_.find(fact.parent_pid);
  if (parent == spaces_of_.end()) {
    // A kernel thread; or the child of an unknown process has the number of one that is gone.
    if (spaces_of_.contains(fact.pid)) new_process(fact.pid, fact.time);
    return;
  }
  const size_t from = parent->second.back().process;
  Process child;
  child.space = builder_.fork_space(processes_[from].space, fact.time);
  child.pid = fact.pid;
  child.parent = from;
  child.forked = child.last_map = fact.time;
  child.probed = processes_[from].probed;
  for (const auto& [begin, index] : processes_[from].live_jit) {
    child.live_jit[begin] = child.jit.size();
    if (processes_[from].intact_jit.contains(begin)) child.intact_jit[begin] = child.jit.size();
    child.jit.push_back(processes_[from].jit[index]);
    child.jit.back().from = fact.time;
  }
  processes_.push_back(std::move(child));
  spaces_of_[fact.pid].push_back({fact.time, processes_.size() - 1, processes_.back().space});
}

// No record shows munmap(): a mapping lasts until another one covers it. The parts on either side that are
// not covered remain.
void UserText::map(const TaskFact& fact) {
  Process& process = processes_[process_of(fact.pid)];
  std::vector<AddrRange> claimed;
  claim_new_parts(process, fact, claimed);
  const Time before = process.last_map;
  const Mapping mapped = add_mapped(process, fact, claimed);
  if (fact.kind == TaskFact::Kind::kMap) remap_jit(process, fact, before);
  auto it = process.current.lower_bound(fact.range.begin);
  if (it != process.current.begin() && process.mappings[std::prev(it)->second].range.end > fact.range.begin)
    --it;
  while (it != process.current.end() && it->first < fact.range.end) {
    const Mapping old = process.mappings[it->second];
    const size_t index = it->second;
    it = process.current.erase(it);
    process.mappings[index].until = just_before(fact.time);
    if (old.from >= fact.time) process.mappings[index].range = {};  // nothing remains of it
    auto keep = [&](AddrRange part) {
      Mapping rest = old;
      rest.pgoff += part.begin - old.range.begin;
      rest.range = part;
      rest.from = std::max(old.from, fact.time);
      process.current[part.begin] = process.mappings.size();
      process.mappings.push_back(rest);
    };
    if (old.range.begin < fact.range.begin) keep({old.range.begin, fact.range.begin});
    if (old.range.end > fact.range.end) keep({fact.range.end, old.range.end});
  }
  process.current[fact.range.begin] = process.mappings.size();
  process.mappings.push_back(mapped);
  // Of "[uprobes-trampoline]" the kernel writes 15 characters (perf_event_mmap_event()).
  if (side_.names[fact.name].starts_with("[uprobes-trampo") && !process.probed)
    add_uprobes(process, fact.time);
}

// The parts of a mapping for which this is new. A JIT that makes its pages writable and then executable again
// maps them anew each time; what it wrote there remains.
void UserText::claim_new_parts(const Process& process, const TaskFact& fact,
                               std::vector<AddrRange>& out) const {
  AddrRange rest = fact.range;
  const bool nameless = fact.name != 0 && has_no_file(side_.names[fact.name]);
  auto it = process.current.upper_bound(rest.begin);
  if (it != process.current.begin()) --it;
  for (; nameless && it != process.current.end() && it->first < rest.end; ++it) {
    const Mapping& old = process.mappings[it->second];
    if (old.name == 0 || !has_no_file(side_.names[old.name]) || !old.range.overlaps(rest)) continue;
    if (rest.begin < old.range.begin) out.push_back({rest.begin, old.range.begin});
    rest.begin = std::min(old.range.end, rest.end);
  }
  if (!rest.empty()) out.push_back(rest);
}

const std::string& UserText::build_id_of(const Mapping& mapping) const {
  const std::string& own = side_.names[mapping.build_id];
  auto header = header_ids_.find(side_.names[mapping.name]);
  return own.empty() && header != header_ids_.end() ? header->second : own;
}

// The path of a mapping without a build-id of its own says which file it was.
bool UserText::is_one_file(const Mapping& mapping) const {
  return !side_.names[mapping.build_id].empty() ||
         (!side_.replaced.contains(mapping.name) && !several_ids_.contains(side_.names[mapping.name]));
}

const TextFile* UserText::file_of(const Mapping& mapping) {
  const auto [known, fresh] = file_of_.try_emplace(uint64_t{mapping.name} << 32U | mapping.build_id, nullptr);
  if (!fresh) return known->second;
  const std::string& name = side_.names[mapping.name];
  if (!has_no_file(name) && jitdump_pid(name) < 0) known->second = files_.find(name, build_id_of(mapping));
  return known->second;
}

// File bytes as far as the file goes; the rest of the range is covered, so that nothing older shows through.
// The rank grows with time: whatever is mapped later wins at its address, in this space and in those forked
// from it.
void UserText::add_layer(const Process& process, const Mapping& mapping) {
  Layer layer{.space = process.space,
              .range = mapping.range,
              .bytes = {},
              .from = mapping.from,
              .rank = next_rank_++,
              .unsure = mapping.written || mapping.misplaced || !is_one_file(mapping)};
  const TextFile* file = file_of(mapping);
  const std::string& name = side_.names[mapping.name];
  const uint64_t pgoff = name == "[vdso]" ? 0 : mapping.pgoff;
  if (file != nullptr && pgoff < file->bytes.size()) {
    auto [origin, fresh] = origins_.try_emplace(file, kNoOrigin);
    if (fresh) {
      const bool vdso = name.find("vdso") != std::string::npos;
      origin->second = builder_.add_origin({.kind = vdso ? OriginKind::kVdso : OriginKind::kFile,
                                            .name = file->path,
                                            .build_id = file->build_id});
      builder_.keep(file->owner);
    }
    layer.bytes =
        file->bytes.subspan(pgoff, std::min<uint64_t>(file->bytes.size() - pgoff, mapping.range.size()));
    layer.range.end = mapping.range.begin + layer.bytes.size();
    layer.origin = origin->second;
    layer.unsure = layer.unsure || file->as_built || file->doubtful;
    if (layer.unsure)
      builder_.add_layer(layer);
    else
      add_file_bytes(layer, *file, pgoff);
    if (mapping.written) note_written(mapping, process.probed);
    layer.range = {layer.range.end, mapping.range.end};
    layer.bytes = {};
    layer.origin = kNoOrigin;
  } else if (mapping.name != 0 && file == nullptr) {
    auto [origin, fresh] = unknown_origins_.try_emplace(mapping.name, kNoOrigin);
    if (fresh)
      origin->second = builder_.add_origin({.kind = OriginKind::kUnknown, .name = name, .build_id = {}});
    layer.origin = origin->second;
  }
  if (!layer.range.empty()) builder_.add_layer(layer);
}

// What is no code of the file is not sure: the file is not there if the trace leads to it.
void UserText::add_file_bytes(const Layer& all, const TextFile& file, uint64_t pgoff) {
  const auto [code, fresh] = code_of_.try_emplace(&file);
  if (fresh && file.elf) code->second = code_in_file(*file.elf);
  const auto add = [&](uint64_t begin, uint64_t end, bool unsure) {  // offsets in the file
    if (begin >= end) return;
    Layer part = all;
    part.range = range_of(all.range.begin + (begin - pgoff), end - begin);
    part.bytes = all.bytes.subspan(begin - pgoff, end - begin);
    part.unsure = unsure;
    builder_.add_layer(part);
  };
  const uint64_t end = pgoff + all.bytes.size();
  uint64_t at = pgoff;
  for (const AddrRange& r : code->second) {
    const uint64_t from = std::clamp(r.begin, at, end), to = std::clamp(r.end, at, end);
    if (from == to) continue;
    add(at, from, true);
    add(from, to, false);
    at = to;
  }
  add(at, end, !code->second.empty());
}

}  // namespace asof
