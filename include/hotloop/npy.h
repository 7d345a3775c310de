// NumPy's .npy and .npz files (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotloop/array.h"

namespace hotloop::io {

// Little-endian arrays in C order: f4, f8, i4, i8, u4 and bool as they are, i1, i2, u1, u2 as i32, f2 as f32. UserError naming the
// file and what to do in NumPy for big-endian or Fortran-ordered arrays, texts, objects, structures, other dtypes; for a
// file that is shorter or longer than its header says, or no .npy file.
Array load_npy(const std::filesystem::path& path);
Array parse_npy(std::string_view bytes, const std::string& source);
// Written to a temporary file beside `path` and renamed into place.
void save_npy(const std::filesystem::path& path, const Array& array);
std::string print_npy(const Array& array);

// The arrays of an .npz file in its order, without the ".npy" of their names: a zip archive, stored or deflated, also with sizes
// beyond 4 GB. UserError for an archive that is damaged, encrypted or compressed in another way.
std::vector<std::pair<std::string, Array>> load_npz(const std::filesystem::path& path);
std::vector<std::pair<std::string, Array>> parse_npz(std::string_view bytes, const std::string& source);

}  // namespace hotloop::io
