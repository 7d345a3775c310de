#include "io/event_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "hotloop/error.h"
#include "io/crc32c.h"

namespace hotloop::io {
namespace {

template <class T> std::string little_endian(T value) {
  std::string out;
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

// Protobuf: a field is (number << 3 | wire type), then a varint (0), 8 bytes (1), a length and bytes (2) or 4 bytes (5).
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string integer_field(unsigned number, std::uint64_t value) { return varint(number << 3) + varint(value); }
std::string double_field(unsigned number, double value) {
  return varint(number << 3 | 1) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string bytes_field(unsigned number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
std::string float_field(unsigned number, float value) {
  return varint(number << 3 | 5) + little_endian(std::bit_cast<std::uint32_t>(value));
}

double now_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string file_name() {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  return "events.out.tfevents." + std::to_string(static_cast<std::int64_t>(now_s())) + "." + host + "." +
         std::to_string(::getpid());
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

std::string event_record(std::string_view bytes) {
  const std::string length = little_endian(static_cast<std::uint64_t>(bytes.size()));
  return length + little_endian(masked_crc32c(length)) + std::string(bytes) + little_endian(masked_crc32c(bytes));
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t first_step)
    : path_(folder / file_name()), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (fd_ < 0)
    throw UserError("tensorboard", "the folder must be writable", path_.string() + " (" + std::strerror(errno) + ")");
  append(double_field(1, now_s()) + bytes_field(3, "brain.Event:2"));
  constexpr std::uint64_t session_start = 1;
  append(double_field(1, now_s()) + integer_field(2, static_cast<std::uint64_t>(first_step)) +
         bytes_field(7, integer_field(1, session_start)));
}

EventFile::~EventFile() { ::close(fd_); }

void EventFile::scalar(std::string_view tag, double value, std::int64_t step) {
  const std::string entry = bytes_field(1, tag) + float_field(2, static_cast<float>(value));
  append(double_field(1, now_s()) + integer_field(2, static_cast<std::uint64_t>(step)) +
         bytes_field(5, bytes_field(1, entry)));
}

// One write an event: a killed program leaves whole records behind.
void EventFile::append(const std::string& event) {
  const std::string record = event_record(event);
  ssize_t count = 0;
  do count = ::write(fd_, record.data(), record.size());
  while (count < 0 && errno == EINTR);
  if (count == static_cast<ssize_t>(record.size())) return;
  const int reason = count < 0 ? errno : ENOSPC;
  throw UserError("tensorboard", "the file must be writable", path_.string() + " (" + std::strerror(reason) + ")",
                  "free some space, or write to another disk");
}

}  // namespace hotloop::io
