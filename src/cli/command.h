// The subcommands of `hotloop`. Adding a file to src/cli/commands is adding a command.
#pragma once

#include <CLI/CLI.hpp>
#include <vector>

namespace hotloop::cli {

// Each file src/cli/commands/<name>.cpp defines `void command_<name>(CLI::App& app)`, which adds its subcommand to `app` with a
// callback that does the work. Callbacks throw UserError for what the user can mend, and ExitCode to end with another status.
using CommandFile = void (*)(CLI::App& app);
std::vector<CommandFile> command_files();  // generated

// Exit statuses.
inline constexpr int exit_user_error =
    2;  // to be mended: arguments, configuration, data, disk, a loss that is not finite
inline constexpr int exit_internal = 70;  // a defect of ours (EX_SOFTWARE)

struct ExitCode {
  int status = 0;
};

inline constexpr const char* version = "0.1.0";

}  // namespace hotloop::cli
