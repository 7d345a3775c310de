#include "deploy/exported_step.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "hotloop/error.h"
#include "hotloop/jit.h"
#include "runtime/lowering.h"
#include "schedule/host.h"

namespace hotloop::deploy {
namespace {

// A target of the schedule and the processors that it is for: levels of the x86-64 psABI, or AArch64.
struct Level {
  std::string_view name, target;
};
constexpr Level levels[] = {
    {"x86-64-v4", "avx512"}, {"x86-64-v3", "avx2"}, {"x86-64-v2", "portable"}, {"aarch64", "neon"}};

const Level& level_of(const std::string& asked) {
  const std::string host = kernel::host_runs("neon") ? "neon" : kernel::host_target().name;
  const std::string& name = asked == "host" ? host : asked;
  for (const Level& level : levels)
    if (name == level.name || name == level.target) return level;
  throw UserError("export", "targets are host, x86-64-v2, x86-64-v3, x86-64-v4 and aarch64", "\"" + asked + "\"",
                  "one of them, or several levels of x86-64 with commas between");
}

std::vector<Level> levels_of(const std::string& targets) {
  std::vector<Level> chosen;
  for (std::size_t at = 0; at <= targets.size();) {
    const std::size_t end = std::min(targets.find(',', at), targets.size());
    const std::string name = targets.substr(at, end - at);
    const Level& level = level_of(name);
    if (std::ranges::find(chosen, level.name, &Level::name) == chosen.end()) chosen.push_back(level);
    at = end + 1;
  }
  std::ranges::sort(chosen, std::ranges::greater(), &Level::name);
  if (chosen.size() > 1 && std::ranges::find(chosen, "aarch64", &Level::name) != chosen.end())
    throw UserError("export", "files for AArch64 are for nothing else", "\"" + targets + "\"", "an export of its own");
  return chosen;
}

bool is_identifier(const std::string& name) {
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return !name.empty() && letter(name[0]) && std::ranges::all_of(name, [&](char c) {
    return letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

// What no field can be called in C or C++ up to C23 and C++23, or in a header of <stdint.h>: keywords, operators that are words, and macros and types that are
// there. What begins with an underscore and a capital, or with two underscores, does not come up.
bool is_reserved(const std::string& name) {
  static constexpr std::string_view words =
      " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t "
      "class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue "
      "decltype default delete do double dynamic_cast else enum explicit export extern false float for friend "
      "goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private "
      "protected public register reinterpret_cast requires restrict return short signed sizeof static "
      "static_assert static_cast struct switch template this thread_local throw true try typedef typeid "
      "typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq linux "
      "unix i386 int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t errno "
      "near far ";
  return words.find(" " + name + " ") != words.npos;
}

// Names of macros, as those of a header that an application includes before this one, have no small letter. One letter alone is a common name of a leaf.
bool may_be_macro(const std::string& name) {
  return name == "I" || (name.size() > 1 && std::ranges::none_of(name, [](char c) { return c >= 'a' && c <= 'z'; }));
}

// "0.weight_ih_l0" as an identifier: `letter` before what does not begin with one, an underscore for each character that is none of ASCII's letters and
// digits.
std::string identifier_of(const std::string& leaf, char letter) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  std::string text;
  for (const char c : leaf) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;  // a character of several bytes in UTF-8
    if (!continues) text += is_word(c) ? c : '_';
  }
  const bool digit = !text.empty() && text[0] >= '0' && text[0] <= '9';
  const bool implementations =
      !text.empty() && text[0] == '_' && (text.size() == 1 || text[1] == '_' || (text[1] >= 'A' && text[1] <= 'Z'));
  return text.empty() || digit || implementations ? letter + text : text;
}

// Fields of a structure for the leaves of a tree, each with a name of its own.
std::vector<ExportedStep::Field> fields_of(std::span<const std::string> leaves, char letter) {
  std::vector<ExportedStep::Field> fields;
  std::unordered_set<std::string> taken;
  for (const std::string& leaf : leaves) {
    std::string base = identifier_of(leaf, letter);
    if (is_reserved(base) || may_be_macro(base)) base += '_';
    std::string name = base;
    for (int i = 2; !taken.insert(name).second; ++i) name = base + (base.back() == '_' ? "" : "_") + std::to_string(i);
    fields.push_back({name, leaf});
  }
  return fields;
}

std::int64_t lay_out(std::span<const Array> arrays, std::vector<std::int64_t>& offsets) {
  std::int64_t end = 0;
  for (const Array& array : arrays) {
    offsets.push_back(end);
    end = aligned(end + std::max<std::int64_t>(static_cast<std::int64_t>(array.bytes()), 1));
  }
  return end;
}

}  // namespace

std::int64_t ExportedStep::kernel_bytes() const {
  std::int64_t most = 64;
  for (const Variant& v : variants) most = std::max(most, v.step.scratch());
  return most;
}

std::vector<std::int64_t> ExportedStep::copies() const {
  std::vector<std::int64_t> at = {kernel_bytes()};
  for (const ValueType& input : inputs) at.push_back(at.back() + aligned(static_cast<std::int64_t>(input.bytes())));
  return at;
}

std::int64_t ExportedStep::scratch_bytes() const { return copies().back(); }

std::int64_t ExportedStep::voice_bytes() const { return VoiceLayout(*this).bytes; }

std::int64_t ExportedStep::weights_bytes() const {
  std::int64_t most = 64;
  for (const Variant& v : variants) most = std::max(most, v.prepared_bytes + v.prepare.scratch());
  return most;
}

void check_options(const ExportOptions& options) {
  if (!is_identifier(options.name))
    throw UserError("export", "the name must be a C identifier", "'" + options.name + "'",
                    "letters, digits and underscores");
  (void)levels_of(options.target);
}

ExportedStep exported_step(const StreamStep& step, const ExportOptions& options) {
  const std::vector<Level> chosen = levels_of(options.target);
  ExportedStep out;
  out.name = options.name;
  out.initial = step.initial_state.flatten();
  out.state_bytes = std::max<std::int64_t>(lay_out(out.initial, out.state_offsets), 64);
  out.params = fields_of(step.bound_names, 'p');
  for (const Array& param : step.bound) out.param_types.push_back(param.type());
  for (const Level& level : chosen) {
    CompileOptions compile_options;
    compile_options.target = level.target;
    kernel::Target target = kernel::target_named(compile_options.target);
    if (options.target == "host") target = kernel::with_caches_of_host(target);
    const runtime::BoundProgram bound =
        runtime::bind_program("export", *step.graph, step.bound, compile_options, target);
    Variant variant;
    variant.level = level.name;
    variant.step.program =
        runtime::lower(*bound.run, runtime::with_sums_kept(compile_options), target, bound.layouts).program;
    variant.prepare.program = runtime::lower(*bound.prepare_graph, compile_options, target).program;
    variant.prepared = bound.prepared;
    variant.prepared_bytes = lay_out(variant.prepared, variant.offsets);
    out.variants.push_back(std::move(variant));
  }
  const kernel::Program& program = out.variants.front().step.program;
  for (std::size_t i = 0; i < step.inputs.num_leaves(); ++i)
    out.inputs.push_back(program.arguments[out.initial.size() + i]);
  if (!step.inputs.is_leaf()) out.input_fields = fields_of(step.inputs.names(), 'x');
  out.y = program.results[0];
  return out;
}

std::string filled(std::string text, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [key, value] : values)
    for (std::size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += value.size())
      text.replace(at, key.size(), value);
  return text;
}

}  // namespace hotloop::deploy
