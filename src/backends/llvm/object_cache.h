// Compiled objects on disk, one checksummed file an entry, in a directory only its owner may enter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hotloop::codegen {

class ObjectCache {
 public:
  explicit ObjectCache(std::string directory) : directory_(std::move(directory)) {}
  // Nothing if there is no entry, or if it is damaged or not of this `key`.
  std::optional<std::string> find(const std::string& key) const;
  // Written beside and renamed into place. False, with nothing changed, where the directory cannot be written.
  bool insert(const std::string& key, std::string_view object) const;
  std::string path_of(const std::string& key) const;

 private:
  std::string directory_;
};

}  // namespace hotloop::codegen
