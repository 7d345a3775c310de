// Plain C through the system's compiler: what is told where there is none, where it does not end by itself, and where its source cannot be written.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "backends/render/system_compiler.h"
#include "hotloop/error.h"
#include "kernel_builder.h"

namespace hotloop::kernel {
namespace {

// As on a full disk: the compiler would be given a part of it.
TEST(CompileC, SourceMustBeWrittenWhole) {
  const Program program = many_statements(host_target());
  rlimit whole{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &whole), 0);
  const rlimit little{4096, whole.rlim_max};
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &little);
  std::string message;
  try {
    (void)compile_c(program, {.cache_dir = ""});
  } catch (const std::exception& e) {  // any: other tests need the limit as it was
    message = e.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &whole);
  std::signal(SIGXFSZ, before);
  EXPECT_NE(message.find("the folder for temporary files must be writable"), std::string::npos) << message;
}

// What is told of a compiler that CC names.
std::string told_of_compiler(const std::string& compiler) {
  ProgramBuilder builder(host_target());
  const char* before = std::getenv("CC");
  const std::string saved = before ? before : "";
  setenv("CC", compiler.c_str(), 1);
  std::string told;
  try {
    compile_c(builder.build());
    ADD_FAILURE() << "must not compile";
  } catch (const UserError& e) {
    told = e.what();
  }
  if (before)
    setenv("CC", saved.c_str(), 1);
  else
    unsetenv("CC");
  return told;
}

TEST(CompileC, MissingCompilerIsAUserError) {
  const std::string told = told_of_compiler("no-such-compiler");
  EXPECT_NE(told.find("needs a C compiler. Received: no program \"no-such-compiler\". Try: install gcc"),
            std::string::npos)
      << told;
}

TEST(CompileC, CompilerThatIsKilledIsAUserError) {
  const render::PrivateDirectory directory;
  const std::filesystem::path killed = directory / "killed";
  std::ofstream(killed) << "#!/bin/sh\nkill -9 $$\n";
  std::filesystem::permissions(killed, std::filesystem::perms::owner_all);
  const std::string told = told_of_compiler(killed.string());
  EXPECT_NE(told.find("ended by signal 9"), std::string::npos) << told;
}

// A process that ignores SIGCHLD never learns how its children ended.
TEST(CompileC, CompilesWhereNobodyWaitsForChildren) {
  ProgramBuilder builder(host_target());
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  EXPECT_NE(compile_c(builder.build())->function(), nullptr);
  std::signal(SIGCHLD, before);
}

}  // namespace
}  // namespace hotloop::kernel
