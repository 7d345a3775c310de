// Rows of fixed size, in memory until a limit is reached and in a temporary file from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hotloop/data.h"

namespace hotloop::data {

// What all stores of a table may take together.
class MemoryBudget {
 public:
  explicit MemoryBudget(MemoryOptions options) : options_(std::move(options)) {}
  bool take(std::size_t bytes);  // false: not that much is left
  void give(std::size_t bytes) { used_ -= bytes; }
  const MemoryOptions& options() const { return options_; }

 private:
  MemoryOptions options_;
  std::size_t used_ = 0;
};

class RowStore {
 public:
  RowStore(std::size_t row_bytes, std::shared_ptr<MemoryBudget> budget);
  ~RowStore();
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  // Writes rows first .. first + count; rows before `first` that were never written are zero. UserError when the disk is full.
  void write(std::int64_t first, std::int64_t count, const void* rows);
  void append(std::int64_t count, const void* rows) { write(num_rows_, count, rows); }
  // Copies rows out. Safe to call from several threads while nobody writes.
  void read(std::int64_t first, std::int64_t count, void* rows) const;
  std::int64_t num_rows() const { return num_rows_; }
  std::size_t row_bytes() const { return row_bytes_; }
  bool in_file() const { return fd_ >= 0; }

 private:
  std::size_t rows_per_chunk() const;
  void move_to_file();
  void write_file(std::uint64_t offset, std::size_t bytes, const void* from);
  [[noreturn]] void fail(const char* requirement) const;

  std::size_t row_bytes_;
  std::shared_ptr<MemoryBudget> budget_;
  std::int64_t num_rows_ = 0;
  // Chunks, so that a store that grows is never copied. All alike but that a small table must not take a large one.
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  int fd_ = -1;
};

}  // namespace hotloop::data
