// Completion scripts, made from the commands and options as they are registered.
#include <fmt/format.h>
#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "hotloop/error.h"

namespace hotloop::cli {
namespace {

struct Completed {
  std::string name, doc;
  std::vector<std::pair<std::string, std::string>> options;  // "--epochs" and what it is
};

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::vector<Completed> commands_of(CLI::App& app) {
  std::vector<Completed> out;
  for (const CLI::App* command : app.get_subcommands({})) {
    Completed c{command->get_name(), one_line(command->get_description()), {}};
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames())
        c.options.emplace_back("--" + name, one_line(option->get_description()));
    out.push_back(std::move(c));
  }
  return out;
}

std::string joined_names(const std::vector<Completed>& commands) {
  std::string out;
  for (const Completed& c : commands) out += (out.empty() ? "" : " ") + c.name;
  return out;
}

std::string print_bash(const std::vector<Completed>& commands) {
  std::string cases;
  for (const Completed& c : commands) {
    std::string options;
    for (const auto& [name, doc] : c.options) options += (options.empty() ? "" : " ") + name;
    cases += fmt::format("    {}) options=\"{}\" ;;\n", c.name, options);
  }
  return fmt::format(R"(# bash completion of hotloop: source <(hotloop completion bash)
_hotloop() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} options=
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _hotloop hotloop
)",
                     joined_names(commands), cases);
}

// Inside single quotes, in an _arguments or _describe specification.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\')
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out;
}

std::string print_zsh(const std::vector<Completed>& commands) {
  std::string names, cases;
  for (const Completed& c : commands) {
    names += fmt::format("    '{}:{}'\n", c.name, zsh_text(c.doc));
    cases += fmt::format("    {})\n      _arguments", c.name);
    for (const auto& [name, doc] : c.options) cases += fmt::format(" \\\n        '{}[{}]'", name, zsh_text(doc));
    cases += " \\\n        '*:file:_files'\n      ;;\n";
  }
  return fmt::format(R"(#compdef hotloop
# zsh completion of hotloop: source <(hotloop completion zsh), or a file _hotloop on $fpath
_hotloop() {{
  local -a commands=(
{})
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=${{words[2]}}
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
compdef _hotloop hotloop
)",
                     names, cases);
}

// Inside single quotes.
std::string fish_text(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out;
}

std::string print_fish(const std::vector<Completed>& commands) {
  std::string out = "# fish completion of hotloop: hotloop completion fish | source\n";
  for (const Completed& c : commands) {
    out += fmt::format("complete -c hotloop -n __fish_use_subcommand -a {} -d '{}'\n", c.name, fish_text(c.doc));
    for (const auto& [name, doc] : c.options)
      out += fmt::format("complete -c hotloop -n '__fish_seen_subcommand_from {}' -l {} -d '{}'\n", c.name,
                         name.substr(2), fish_text(doc));
  }
  return out;
}

}  // namespace

void command_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  command->footer(
      "\nbash: source <(hotloop completion bash)   zsh: source <(hotloop completion zsh)\nfish: hotloop completion "
      "fish | source");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, shell] {
    const std::vector<Completed> commands = commands_of(app);
    const std::string script = *shell == "bash"  ? print_bash(commands)
                               : *shell == "zsh" ? print_zsh(commands)
                                                 : print_fish(commands);
    fmt::print("{}", script);
  });
}

}  // namespace hotloop::cli
