// What a loop writes, and which small buffers pass a value from one of its iterations to the next: those are kept in registers.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "schedule/kernel_ir.h"

namespace hotloop::codegen {

class LoopMemory {
 public:
  LoopMemory(const kernel::Program& program, const kernel::For& loop);

  bool is_straight() const { return is_straight_; }  // no barriers, nor statements that only some workers run
  const std::set<int>& written() const { return written_; }
  // Buffers of at most a vector that an iteration reads before it writes them, whole each time.
  std::vector<int> carried() const;

 private:
  struct Use {
    bool is_read_first = false;
    bool is_whole = true;  // each write
  };
  void scan(const kernel::Block& block);
  void reads(int buffer);
  void writes(int buffer, bool whole);
  bool is_whole(const kernel::Map& map, const kernel::Instr& store) const;

  const kernel::Program& program_;
  bool is_straight_ = true;
  std::set<int> written_;
  std::map<int, Use> uses_;
};

}  // namespace hotloop::codegen
