#include "hotloop/error.h"

namespace hotloop {
namespace {

std::string compose(const std::string& where, const std::string& requirement, const std::string& received,
                    const std::string& remedy) {
  std::string text = "[" + where + "] " + requirement;
  if (!text.ends_with('.')) text += '.';
  if (!received.empty()) text += " Received: " + received + (received.ends_with('.') ? "" : ".");
  if (!remedy.empty()) text += " Try: " + remedy + (remedy.ends_with('.') || remedy.ends_with('?') ? "" : ".");
  return text;
}

}  // namespace

UserError::UserError(const std::string& where, const std::string& requirement, const std::string& received,
                     const std::string& remedy)
    : std::runtime_error(compose(where, requirement, received, remedy)),
      where_(where),
      requirement_(requirement),
      received_(received),
      remedy_(remedy) {}

InternalError::InternalError(const char* file, int line, const std::string& what)
    : std::logic_error("[internal] " + what + " (" + std::string(file).substr(std::string(file).rfind('/') + 1) + ":" +
                       std::to_string(line) +
                       "). This is a defect of Hotloop, not of your program: please report it "
                       "with the program that caused it.") {}

}  // namespace hotloop
