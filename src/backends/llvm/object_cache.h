// Compiled objects on disk, one checksummed file an entry, in a folder that only its owner can write.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace hotloop::codegen {

// Several processes may use one folder at once: entries appear whole, and one that is removed while it is read is read to its end.
class ObjectCache {
 public:
  // `directory`: one that exists, or nothing is found and kept. `max_bytes`: what its files may hold together, roughly.
  ObjectCache(std::string directory, std::int64_t max_bytes)
      : directory_(std::move(directory)), max_bytes_(max_bytes) {}
  // Nothing if there is no entry, or if it is damaged or not of this `key`.
  std::optional<std::string> find(const std::string& key) const;
  // Written beside and renamed into place. False, with nothing changed, where the directory cannot be written. Once in about a
  // sixteenth of max_bytes of what is inserted, by any process, trims.
  bool insert(const std::string& key, std::string_view object) const;
  // If the entries hold more than max_bytes, removes those that were not used for longest, until a sixteenth is free. Also what
  // interrupted processes left.
  void trim() const;
  std::string path_of(const std::string& key) const;

 private:
  std::string directory_;
  std::int64_t max_bytes_;
};

}  // namespace hotloop::codegen
