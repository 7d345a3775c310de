// What running the system's compiler takes: a place for its files, and a process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hotloop::render {

// A directory that only this user can read, removed with all it holds. UserError where none can be made.
class PrivateDirectory {
 public:
  PrivateDirectory();
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path& path);

// Exit status of the command, its output in `log`; -1 if it cannot be started.
int run_command(const std::vector<std::string>& command, const std::filesystem::path& log);

}  // namespace hotloop::render
