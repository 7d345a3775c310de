// Tables of other libraries, through the Arrow C stream interface (https://arrow.apache.org/docs/format/CStreamInterface.html): three plain
// structures that pyarrow, polars, pandas, DuckDB and others hand out, so that nothing of theirs is linked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "hotloop/table.h"

// The structures of the interface. Whoever defines them first sets the macros.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowSchema {
  const char *format, *name, *metadata;
  std::int64_t flags, n_children;
  ArrowSchema **children, *dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  std::int64_t length, null_count, offset, n_buffers, n_children;
  const void** buffers;
  ArrowArray **children, *dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema* out);
  int (*get_next)(ArrowArrayStream*, ArrowArray* out);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};
#endif

namespace hotloop::data {

// The rows of a stream of record batches; what `stream` holds is taken over and released with the source. `name` stands for the
// table in messages.
// Numbers are booleans, integers and floats (integers beyond 2^53 are rounded), and timestamps in seconds. Times are timestamps
// (without a zone: as UTC), dates, and numbers and texts as a CSV file's. Texts are strings of any layout, dictionaries, and
// everything else as it is printed. Null and NaN are missing values. UserError for other types, such as decimals and lists, for a
// missing or twofold column, and for what the stream's owner reports.
std::unique_ptr<RowSource> open_arrow(ArrowArrayStream* stream, const std::string& name = "the table",
                                      const CsvOptions& options = {});

}  // namespace hotloop::data
