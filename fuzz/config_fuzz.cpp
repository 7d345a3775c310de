// Any text is a configuration, whose data tables are printed so that they read back and print alike, or a UserError.
#include <cstdlib>

#include "cli/data_config.h"
#include "hotloop/error.h"

using namespace hotloop;

namespace {

std::string print(std::string_view text) {
  cli::ConfigFile file = cli::ConfigFile::parse(text, "fuzz");
  cli::read_data_config(file, [](const std::string& given) { return given; });
  const std::vector<Parameter> parameters = {{"hidden", std::int64_t{1}, "units"},
                                             {"rate", 0.5, "share"},
                                             {"bias", true, "whether"},
                                             {"kind", std::string("a"), "which", false, {"a", "b"}}};
  for (cli::Section& layer : file.sections("model", "Layers.")) {
    layer.text("type", "of layer");
    layer.settings(parameters);
  }
  file.finish();
  return file.print();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string printed;
  try {
    printed = print({reinterpret_cast<const char*>(data), size});
  } catch (const UserError&) {
    return 0;
  }
  if (print(printed) != printed) std::abort();
  return 0;
}
