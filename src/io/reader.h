// The bytes of a file, one after another or at an offset.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace hotloop::io {

// An open file. UserError "[where] ..." with the system's reason when it cannot be opened or read.
class FileReader {
 public:
  FileReader(std::filesystem::path path, std::string where);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // Up to `size` bytes at the current position; fewer only at the end.
  std::size_t read(void* out, std::size_t size);
  // The same at an offset, without moving; not for pipes.
  std::size_t read_at(std::uint64_t offset, void* out, std::size_t size) const;
  std::uint64_t size() const;  // 0 for a pipe
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::string where_;
  int fd_ = -1;
};

}  // namespace hotloop::io
