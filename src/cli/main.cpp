// `hotloop`: the command line. Subcommands are in src/cli/commands.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <system_error>

#include "cli/command.h"
#include "core/memory.h"
#include "core/nearest.h"
#include "hotloop/error.h"

namespace {

using namespace hotloop;

int report(const std::string& message, int status) {
  std::fflush(stdout);
  std::fprintf(stderr, "hotloop: %s\n", message.c_str());
  return status;
}

// CLI11 says of `hotloop trian` only that it did not expect the word.
void check_subcommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::ranges::find(names, argv[1]) == names.end())
    throw UserError("command", "the command must be one that exists", "'" + std::string(argv[1]) + "'",
                    nearest_hint(argv[1], names));
}

// The nearest name of an option that there is not, what a missing one is, or where to read more.
std::string remedy(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const auto used = app.get_subcommands();
  const CLI::App& command = used.empty() ? app : *used.front();
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    if (error.what() == option->get_name() + " is required") {
      std::string doc = option->get_description();
      std::ranges::replace(doc, '\n', ' ');
      return option->get_name() + ", " + doc;
    }
  }
  for (int i = 1; i < argc; ++i) {
    const std::string given(argv[i], std::strcspn(argv[i], "="));
    if (!given.starts_with("--") || std::ranges::find(names, given) != names.end()) continue;
    if (const std::string hint = nearest_hint(given, names); hint.ends_with('?')) return hint;
  }
  return "hotloop " + (used.empty() ? "" : command.get_name() + " ") + "--help";
}

int run(int argc, char** argv) {
  CLI::App app(
      "Hotloop trains and runs small and sequential neural networks, each compiled\n"
      "with its whole loop into one program.",
      "hotloop");
  app.set_version_flag("--version", std::string("hotloop ") + cli::version, "Print the version and exit");
  app.require_subcommand(1);
  app.get_formatter()->column_width(28);
  app.set_help_flag("-h,--help", "Print this help and exit");
  for (const cli::CommandFile command : cli::command_files()) command(app);
  app.footer(
      "\nhotloop COMMAND --help tells more. Exit status: 0 done; 2 something must be\n"
      "mended: arguments, configuration, data, a full disk, a loss that is not finite;\n"
      "130 or 143 stopped by Ctrl-C or SIGTERM; 70 a defect of hotloop.");
  try {
    check_subcommand(app, argc, argv);
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& e) {
    std::string received = "hotloop";
    for (int i = 1; i < argc; ++i) received += " " + std::string(argv[i]);
    std::string requirement = e.what();
    // CLI11 names them from the last to the first.
    if (const auto rest = app.remaining(true);
        dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr && rest.size() > 1) {
      requirement = "The following arguments were not expected:";
      for (const std::string& argument : rest) requirement += " " + argument;
    }
    throw UserError("arguments", requirement, received, remedy(app, e, argc, argv));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows past its limit is an error of write(), to be reported as one
  try {
    const int status = run(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw std::system_error(errno != 0 ? errno : EIO, std::generic_category());
    return status;
  } catch (const cli::ExitCode& e) {
    return e.status;
  } catch (const UserError& e) {
    return report(e.what(), cli::exit_user_error);
  } catch (const std::system_error& e) {  // of printing: files have messages of their own
    std::clearerr(stdout);
    return report("[output] the output must be writable. Received: " + e.code().message() + ".", cli::exit_user_error);
  } catch (const std::bad_alloc& e) {
    const auto* array = dynamic_cast<const OutOfMemory*>(&e);
    const UserError error("memory", "the model and its data must fit the memory",
                          array != nullptr ? array->array() : "a request for which there is none",
                          "fewer units, or a smaller batch_size");
    return report(error.what(), cli::exit_user_error);
  } catch (const std::exception& e) {
    return report(e.what(), cli::exit_internal);
  }
}
