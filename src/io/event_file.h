// Scalars over the course of a training, in TensorBoard's file format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace hotloop::io {

// A file events.out.tfevents.<time>.<host>.<process> that grows by one record an event. A record is
//   u64 length, u32 masked crc32c of these 8 bytes, the bytes, u32 masked crc32c of the bytes     (little-endian)
// and its bytes are a tensorflow.Event in protobuf: 1 wall_time (double), 2 step (int64), 3 file_version,
// 5 summary { 1 value { 1 tag, 2 simple_value (float) } }, 7 session_log { 1 status }.
class EventFile {
 public:
  // Creates the file in `folder`. What earlier files there say of steps from `first_step` on is then ignored by readers: a
  // resumed run takes over. UserError if the file cannot be written, here and below.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void scalar(std::string_view tag, double value, std::int64_t step);
  const std::filesystem::path& path() const { return path_; }

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  int fd_;
};

// One record around `bytes`, and its checksum (crc rotated by 15 bits plus a constant), for tests.
std::string event_record(std::string_view bytes);
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace hotloop::io
