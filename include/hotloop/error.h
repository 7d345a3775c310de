// Errors that a user can mend (UserError) and errors that are our fault (InternalError).
#pragma once

#include <stdexcept>
#include <string>

namespace hotloop {

// Something in the caller's program, data or request. The text reads
//   [where] what is required. Received: what came. Try: the remedy.
class UserError : public std::runtime_error {
 public:
  UserError(const std::string& where, const std::string& requirement, const std::string& received = "",
            const std::string& remedy = "");

  const std::string& where() const { return where_; }
  // The parts of the text as they were given, "" for what was not.
  const std::string& requirement() const { return requirement_; }
  const std::string& received() const { return received_; }
  const std::string& remedy() const { return remedy_; }

 private:
  std::string where_, requirement_, received_, remedy_;
};

// A broken promise inside Hotloop. The text asks for a report.
class InternalError : public std::logic_error {
 public:
  InternalError(const char* file, int line, const std::string& what);
};

// Throws InternalError when `condition` is false: for invariants of ours, never for input.
#define HOTLOOP_CHECK(condition, what)                                          \
  do {                                                                          \
    if (!(condition)) throw ::hotloop::InternalError(__FILE__, __LINE__, what); \
  } while (false)

}  // namespace hotloop
