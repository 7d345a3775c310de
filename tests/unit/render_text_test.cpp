// The text of rendered C: literals, and what it says of memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "backends/render/cuda_c.h"
#include "backends/render/renderer.h"
#include "core/print_number.h"
#include "kernel_builder.h"
#include "kernel_reference.h"

namespace hotloop::kernel {
namespace {

TEST(RenderedText, LiteralsGiveTheirNumbersBack) {
  const auto literal = [](const Array& data) { return render::static_literal(render::plain_c(), data, 0); };
  EXPECT_EQ(print_hex(3), "0x1.8p+1");
  EXPECT_EQ(print_hex(-0.0), "-0x0p+0");
  for (const double value : {0.1, -1e300, 5e-324, -2.5e-310, 0x1p-149, 131072.0, 9007199254740992.0})
    EXPECT_EQ(std::strtod(print_hex(value).c_str(), nullptr), value) << print_hex(value);
  constexpr double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(literal(Array::full(DType::F32, {1}, -inf)), "-__builtin_inff()");
  EXPECT_EQ(literal(Array::full(DType::F64, {1}, inf)), "__builtin_inf()");
  EXPECT_EQ(literal(Array::full(DType::F32, {1}, std::abs(std::nan("")))), "__builtin_nanf(\"\")");
  EXPECT_EQ(literal(Array::full(DType::F32, {1}, 0.5)), "0x1p-1f");
  EXPECT_EQ(literal(Array::from<std::int32_t>({INT32_MIN}, {1})), "(int32_t)-2147483648");
  EXPECT_EQ(literal(Array::from<std::int64_t>({INT64_MIN}, {1})), "(int64_t)(-INT64_C(9223372036854775807) - 1)");
  EXPECT_EQ(literal(Array::from<std::uint32_t>({UINT32_MAX}, {1})), "4294967295u");
}

// A compiler may take stores of numbers of one type for stores that do not touch numbers of another one, and move them across.
TEST(RenderedText, SaysWhichMemoryChangesItsType) {
  ProgramBuilder builder(host_target());
  constexpr std::int64_t n = 64;
  const int x = builder.argument(DType::F32, n), k = builder.argument(DType::I32, n);
  const int y = builder.result(DType::F32, n), z = builder.result(DType::I32, n);
  const int floats = builder.worker(DType::F32, n), integers = builder.worker(DType::I32, n);
  const int alone = builder.worker(DType::F32, n);
  const Var i = builder.var("i");
  const auto copied = [&](DType dtype, int from, int to, bool reverse) {
    MapBuilder m({{i, {n, -1}}}, 1, 0);
    const Affine place = reverse ? Affine::of(i, -1) + Affine(n - 1) : Affine::of(i);
    m.store(dtype, at(to, Affine::of(i)), m.load(dtype, at(from, place)));
    return m.build();
  };
  Block body;
  body.push_back({copied(DType::F32, x, floats, false)});
  body.push_back({copied(DType::F32, floats, alone, true)});
  body.push_back({copied(DType::I32, k, integers, false)});
  body.push_back({copied(DType::I32, integers, z, true)});
  body.push_back({copied(DType::F32, alone, y, false)});
  builder.add(Single{body});
  Program program = builder.build();
  Buffer& later = program.buffers[static_cast<std::size_t>(integers)];
  later.offset = program.buffers[static_cast<std::size_t>(floats)].offset;
  const auto pointer = [](const std::string& text, int b) {
    const std::string name = "* const b" + std::to_string(b) + " = ";
    const std::size_t end = text.find(name);
    return text.substr(text.rfind(' ', end) + 1, end - text.rfind(' ', end) - 1);
  };
  const std::string text = render::render(program, render::plain_c());
  EXPECT_EQ(pointer(text, floats), "hl_shared_f32");
  EXPECT_EQ(pointer(text, integers), "hl_shared_i32");
  EXPECT_EQ(pointer(text, alone), "float");
  EXPECT_EQ(pointer(text, y), "float");

  std::vector<float> numbers;
  std::vector<std::int32_t> whole;
  for (std::int32_t j = 0; j < n; ++j) {
    numbers.push_back(static_cast<float>(j) + 0.5f);
    whole.push_back(3 * j - 50);
  }
  std::vector<Array> results = {Array::zeros(DType::F32, {n}), Array::zeros(DType::I32, {n})};
  run_kernel(program, compile_c(program)->function(), {Array::from(numbers, {n}), Array::from(whole, {n})}, results);
  for (std::size_t j = 0; j < static_cast<std::size_t>(n); ++j) {
    EXPECT_EQ(results[0].data<float>()[j], numbers[static_cast<std::size_t>(n) - 1 - j]);
    EXPECT_EQ(results[1].data<std::int32_t>()[j], whole[static_cast<std::size_t>(n) - 1 - j]);
  }
}

// Names are a user's: of functions, which may be called anything.
TEST(RenderedText, NamesStayInTheirComments) {
  ProgramBuilder builder(host_target());
  const int x = builder.argument(DType::F32, 8), y = builder.result(DType::F32, 8);
  const Var i = builder.var("i");
  MapBuilder m({{i, {8, -1}}}, 1, 0);
  m.store(DType::F32, at(y, Affine::of(i)), m.load(DType::F32, at(x, Affine::of(i))));
  Map map = m.build();
  map.name = "two\nlines(";
  builder.add(Single{{{map}}});
  Program program = builder.build();
  program.name = "ends in \\";
  program.buffers[0].name = "\r\\";
  std::vector<Array> results = {Array::zeros(DType::F32, {8})};
  run_kernel(program, compile_c(program)->function(), {Array::full(DType::F32, {8}, 3)}, results);
  EXPECT_EQ(results[0].at(7), 3);
  program.target = cuda_target();
  const std::string text = render::render_cuda(program, {.worker = {}, .profile = true}).text;
  EXPECT_NE(text.find("// ends in /\n"), std::string::npos);
  EXPECT_NE(text.find("\"map two lines(\""), std::string::npos);
}

}  // namespace
}  // namespace hotloop::kernel
