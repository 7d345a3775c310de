// The [data], [window] and [split] tables of a configuration.
#pragma once

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

// `shown_file` is printed as the file instead of what is written.
DataConfig read_data_config(ConfigFile& file, const std::function<std::string(const std::string& given)>& shown_file);

}  // namespace hotloop::cli
