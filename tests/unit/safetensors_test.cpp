// Checkpoints: round trips, the exact bytes, and files that lie.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "hotloop/error.h"
#include "hotloop/io.h"

namespace hotloop::io {
namespace {

std::string file_of(const std::string& header, const std::string& data = "") {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

std::string refusal(const std::string& bytes) {
  try {
    parse_safetensors(bytes, "m.safetensors");
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Safetensors, RoundTripOfEveryDtype) {
  Checkpoint in;
  in.metadata = {{"format", "pt"}, {"note", "quotes \" and \n newlines, \xc3\xa9"}};
  in.tensors = {
      {"weight_ih_l0", Array::from(std::vector<float>{1, -2, std::numeric_limits<float>::quiet_NaN()}, {3, 1})},
      {"f64", Array::from(std::vector<double>{0.1, -0.0}, {2})},
      {"i32", Array::from(std::vector<std::int32_t>{-5}, {1, 1, 1})},
      {"u32", Array::from(std::vector<std::uint32_t>{4000000000u}, {})},
      {"i64", Array::from(std::vector<std::int64_t>{1LL << 60}, {1})},
      {"bool", Array::from(std::vector<std::uint8_t>{0, 1, 1}, {3})},
      {"empty", Array(DType::F32, {0, 7})}};
  const Checkpoint out = parse_safetensors(print_safetensors(in), "m");
  EXPECT_EQ(out.metadata, in.metadata);
  ASSERT_EQ(out.tensors.size(), in.tensors.size());
  for (std::size_t i = 0; i < in.tensors.size(); ++i) {
    EXPECT_EQ(out.tensors[i].first, in.tensors[i].first);
    EXPECT_EQ(out.tensors[i].second.type(), in.tensors[i].second.type());
    EXPECT_EQ(std::memcmp(out.tensors[i].second.raw(), in.tensors[i].second.raw(), in.tensors[i].second.bytes()), 0);
  }
}

TEST(Safetensors, TheBytesAreThoseOfTheFormat) {
  Checkpoint in;
  in.tensors = {{"a", Array::from(std::vector<float>{1.0f}, {1})}};
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  EXPECT_EQ(print_safetensors(in),
            file_of(header + std::string((8 - header.size() % 8) % 8, ' '), std::string("\x00\x00\x80\x3f", 4)));
}

TEST(Safetensors, FilesAreReplacedWhole) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "hotloop_safetensors";
  std::filesystem::create_directories(folder);
  const auto path = folder / "m.safetensors";
  Checkpoint in;
  in.tensors = {{"a", Array::from(std::vector<float>{1}, {1})}};
  save_safetensors(path, in);
  in.tensors[0].second = Array::from(std::vector<float>{2}, {1});
  save_safetensors(path, in);
  EXPECT_EQ(load_safetensors(path)["a"].at(0), 2);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);  // no temporary file stays
  std::filesystem::remove_all(folder);
  EXPECT_THROW(save_safetensors(path, in), UserError);
  EXPECT_THROW(load_safetensors(path), UserError);
}

TEST(Safetensors, UnknownTensorsNameTheNearest) {
  Checkpoint in;
  in.tensors = {{"weight_ih_l0", Array::zeros(DType::F32, {1})}};
  try {
    in["weight_ih_0"];
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "[checkpoint] the tensor must be there. Received: 'weight_ih_0'. "
                 "Try: did you mean 'weight_ih_l0'?");
  }
}

TEST(Safetensors, NamesTwiceAreNotWritten) {
  Checkpoint in;
  in.tensors = {{"a", Array::zeros(DType::F32, {1})}, {"a", Array::zeros(DType::F32, {1})}};
  EXPECT_THROW(print_safetensors(in), UserError);
  in.tensors = {{"__metadata__", Array::zeros(DType::F32, {1})}};
  EXPECT_THROW(print_safetensors(in), UserError);
}

TEST(Safetensors, HostileFiles) {
  const std::string data(4, '\0');
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  EXPECT_EQ(refusal(file_of(entry("\"F32\"", "[1]", "[0,4]"), data)), "accepted");
  EXPECT_EQ(refusal(file_of("{}")), "accepted");

  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "8 bytes of header length"},
      {std::string("\x01\0\0", 3), "8 bytes of header length"},
      {std::string(8, '\xff'), "a header inside the file"},
      {std::string("\x05\0\0\0\0\0\0\0{}", 10), "a header inside the file"},
      {file_of(""), "a JSON object as header"},
      {file_of("[]"), "a JSON object as header"},
      {file_of(" {}"), "a JSON object as header"},
      {file_of("{"), "a header of valid JSON"},
      {file_of("{} x"), "a header of valid JSON"},
      {file_of("{\"\xff\":1}"), "a header of valid JSON"},
      {file_of("{\"a\":" + std::string(200000, '[') + std::string(200000, ']') + "}"), "a header of valid JSON"},
      {file_of("{\"a\":1}"), "exactly dtype, shape and data_offsets"},
      {file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}"), "exactly dtype, shape and data_offsets"},
      {file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":1}}"), "exactly dtype"},
      {file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
               "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}"),
       "every name once"},
      {file_of("{\"__metadata__\":{\"a\":1}}"), "an object of strings"},
      {file_of("{\"__metadata__\":[]}"), "an object of strings"},
      {file_of(entry("\"BF16\"", "[2]", "[0,4]"), data), "a dtype of BOOL"},
      {file_of(entry("7", "[1]", "[0,4]"), data), "a dtype of BOOL"},
      {file_of(entry("\"F32\"", "1", "[0,4]"), data), "a shape of non-negative integers"},
      {file_of(entry("\"F32\"", "[-1]", "[0,4]"), data), "a shape of non-negative integers"},
      {file_of(entry("\"F32\"", "[1.0]", "[0,4]"), data), "a shape of non-negative integers"},
      {file_of(entry("\"F32\"", "[2]", "[0,4]"), data), "8 bytes for its dtype and shape"},
      {file_of(entry("\"F32\"", "[4294967296,4294967296]", "[0,4]"), data), "a shape whose size can be counted"},
      {file_of(entry("\"F32\"", "[9223372036854775808]", "[0,4]"), data), "a shape whose size can be counted"},
      {file_of(entry("\"F32\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]"), data), "at most 12 axes"},
      {file_of(entry("\"F32\"", "[1]", "[0]"), data), "two data_offsets"},
      {file_of(entry("\"F32\"", "[1]", "[4,0]"), data), "two data_offsets, in order"},
      {file_of(entry("\"F32\"", "[2]", "[0,8]"), data), "inside the 4 bytes"},
      {file_of(entry("\"F32\"", "[1]", "[0,4]"), data + "x"), "no bytes beside its tensors"},
      {file_of(entry("\"F32\"", "[1]", "[1,5]"), data + "x"), "without holes"},
      {file_of("{}", "x"), "no bytes beside its tensors"},
      {file_of("{\"a\":{\"dtype\":\"BOOL\",\"shape\":[4],\"data_offsets\":[0,4]},"
               "\"b\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[2,4]}}",
               data),
       "without holes or overlaps"},
      {file_of(entry("\"BOOL\"", "[4]", "[0,4]"), std::string("\x02\0\0\0", 4)), "bools of 0 or 1"},
  };
  for (const auto& [bytes, requirement] : cases) {
    const std::string text = refusal(bytes);
    EXPECT_NE(text.find(requirement), std::string::npos) << text << "\nwanted: " << requirement;
    EXPECT_TRUE(text.starts_with("[safetensors] m.safetensors must have ")) << text;
  }
}

TEST(Safetensors, EveryTruncationOfAGoodFileIsRefused) {
  Checkpoint in;
  in.tensors = {{"a", Array::zeros(DType::F32, {3})}, {"b", Array::zeros(DType::F64, {2})}};
  const std::string bytes = print_safetensors(in);
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(refusal(bytes.substr(0, size)), "accepted") << size;
}

}  // namespace
}  // namespace hotloop::io
