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

// How a command ended.
struct CommandResult {
  enum class End { NotStarted, Exited, Killed, Unknown };  // Unknown: another part of the process has waited for it
  End end = End::NotStarted;
  int number = 0;  // the exit status, or the signal
};

// Its output goes to `log`.
CommandResult run_command(const std::vector<std::string>& command, const std::filesystem::path& log);

}  // namespace hotloop::render
