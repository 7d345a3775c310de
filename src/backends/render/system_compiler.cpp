#include "backends/render/system_compiler.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include <spawn.h>

#include "hotloop/error.h"

extern char** environ;

namespace hotloop::render {

namespace fs = std::filesystem;

PrivateDirectory::PrivateDirectory() {
  std::string pattern = (fs::temp_directory_path() / "hotloop-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    throw UserError("backend c", "needs a temporary directory to compile in", pattern,
                    "set TMPDIR to a directory you can write");
  }
  path_ = pattern;
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string read_text(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

CommandResult run_command(const std::vector<std::string>& command, const fs::path& log) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  using enum CommandResult::End;
  if (failed != 0) return {};
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return {Unknown};  // ECHILD where SIGCHLD is ignored
  // posix_spawnp may report a missing program by status 127.
  if (WIFEXITED(status))
    return WEXITSTATUS(status) == 127 ? CommandResult{} : CommandResult{Exited, WEXITSTATUS(status)};
  return {Killed, WTERMSIG(status)};
}

}  // namespace hotloop::render
