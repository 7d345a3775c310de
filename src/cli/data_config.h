// The [data], [window] and [split] tables of a configuration.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "cli/config_reader.h"
#include "hotloop/data.h"

namespace hotloop::cli {

// How the table is read, and what is made of it. The recipe's dtype and kept columns come from other tables.
struct DataConfig {
  std::string file;  // as it is written
  data::CsvOptions csv;
  data::MemoryOptions memory;
  data::Recipe recipe;
};

// The file that a configuration in `folder` names, and how one in `folder` names a file that is seen from the working directory. Where a link is on
// the way, .. of it is another folder than the text says: then the path goes around the links.
std::filesystem::path named_file(const std::filesystem::path& folder, const std::string& given);
std::filesystem::path seen_from(const std::filesystem::path& folder, const std::filesystem::path& file);

// `shown_file` is printed as the file instead of what is written.
DataConfig read_data_config(ConfigFile& file, const std::function<std::string(const std::string& given)>& shown_file);

}  // namespace hotloop::cli
