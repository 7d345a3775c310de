// The text form of a graph. Values are numbered in the order they appear, inputs first, and every graph counts for
// itself, so that the text of a region does not depend on where it stands:
//
//   main(%0: f32[2,3] x, %1: f32[3]) {
//     %2: f32[2,3] = broadcast(%1) {axes=[1], shape=[2,3]}
//     %3: f32[2,3] = mul(%0, %2) generation 1
//     return %3
//   }
//
// Regions of a node follow its attributes as graphs in braces, then `rule` and the derivative rule of a call, likewise.
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "ir/op_def.h"

namespace hotloop::ir {
namespace {

std::string quoted(const std::string& text) {
  std::string s = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    if (c == '\n')
      s += "\\n";
    else
      s += c;
  }
  return s + '"';
}

bool is_plain_name(const std::string& name) {
  if (name.empty()) return false;
  for (char c : name)
    if (!(std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' || c == '/'))
      return false;
  return std::isdigit(static_cast<unsigned char>(name[0])) == 0 && name[0] != '-';
}

std::string name_text(const std::string& name) { return is_plain_name(name) ? name : quoted(name); }

// The shortest decimal text that reads back to the same bits; a NaN other than the usual one shows its bits.
template <class T> std::string number_text(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) {
      using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
      const Bits bits = std::bit_cast<Bits>(value);
      if (bits == std::bit_cast<Bits>(std::numeric_limits<T>::quiet_NaN())) return "nan";
      return "nan:" + std::to_string(bits);
    }
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  }
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

std::string double_text(double value) {
  std::string s = number_text(value);
  return s.find_first_of(".enif") == std::string::npos ? s + ".0" : s;
}

std::string array_text(const Array& array) {
  std::string s = array.type().str() + "{";
  const std::int64_t n = array.size();
  const std::size_t width = size_of(array.dtype());
  const char* bytes = static_cast<const char*>(array.raw());
  bool splat = n > 1;
  for (std::int64_t i = 1; i < n && splat; ++i)
    splat = std::memcmp(bytes, bytes + static_cast<std::size_t>(i) * width, width) == 0;
  visit_dtype(array.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* data = static_cast<const T*>(array.raw());
    for (std::int64_t i = 0; i < (splat ? 1 : n); ++i) {
      if (i) s += ", ";
      if constexpr (std::is_same_v<T, std::uint8_t>)
        s += std::to_string(data[i]);
      else
        s += number_text(data[i]);
    }
  });
  return s + (splat ? "...}" : "}");
}

std::string attr_text(const Attr& attr) {
  struct Visitor {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return double_text(v); }
    std::string operator()(const std::string& v) const { return quoted(v); }
    std::string operator()(const std::vector<std::int64_t>& v) const {
      std::string s = "[";
      for (std::size_t i = 0; i < v.size(); ++i) s += (i ? "," : "") + std::to_string(v[i]);
      return s + "]";
    }
    std::string operator()(DType v) const { return std::string(name_of(v)); }
    std::string operator()(const Array& v) const { return array_text(v); }
    std::string operator()(const std::shared_ptr<const LazyGraph>&) const { return {}; }
  };
  return std::visit(Visitor{}, attr);
}

class Printer {
 public:
  explicit Printer(bool with_rules) : with_rules_(with_rules) {}
  void graph(const Graph& g, int depth) {
    std::map<std::pair<int, int>, int> outer = std::move(numbers_);
    const int outer_count = count_;
    numbers_.clear();
    count_ = 0;
    text_ += name_text(g.name()) + "(";
    for (std::size_t i = 0; i < g.inputs().size(); ++i) {
      const Value v = g.inputs()[i];
      const std::string& name = g.input_name(static_cast<int>(i));
      text_ += (i ? ", " : "") + define(v) + ": " + v.type().str() + (name.empty() ? "" : " " + name_text(name));
    }
    text_ += ") {\n";
    for (const auto& node : g.nodes())
      if (node->op->kind != OpKind::Input) line(*node, depth + 1);
    indent(depth + 1);
    text_ += "return";
    for (std::size_t i = 0; i < g.outputs().size(); ++i) text_ += (i ? ", " : " ") + use(g.outputs()[i]);
    text_ += "\n";
    indent(depth);
    text_ += "}";
    numbers_ = std::move(outer);
    count_ = outer_count;
  }

  std::string take() { return std::move(text_); }

 private:
  void indent(int depth) { text_.append(static_cast<std::size_t>(2 * depth), ' '); }
  std::string define(Value v) {
    numbers_[{v.node->id, v.index}] = count_;
    return "%" + std::to_string(count_++);
  }
  // A broken graph must still print, for the message that says so.
  std::string use(Value v) const {
    if (!v.defined()) return "%undefined";
    const auto it = numbers_.find({v.node->id, v.index});
    return it == numbers_.end() ? "%foreign" : "%" + std::to_string(it->second);
  }

  void line(const Node& node, int depth) {
    std::string operands;
    for (std::size_t i = 0; i < node.operands.size(); ++i) operands += (i ? ", " : "") + use(node.operands[i]);
    indent(depth);
    for (std::size_t i = 0; i < node.types.size(); ++i)
      text_ += (i ? ", " : "") + define({const_cast<Node*>(&node), static_cast<int>(i)}) + ": " + node.types[i].str();
    text_ += " = " + node.op->name + "(" + operands + ")";
    bool first = true;
    const LazyGraph* rule = nullptr;
    for (const auto& [name, value] : node.attrs.entries()) {
      if (const auto* const graph = std::get_if<std::shared_ptr<const LazyGraph>>(&value)) {
        rule = graph->get();
        continue;
      }
      text_ += (first ? " {" : ", ") + name + "=" + attr_text(value);
      first = false;
    }
    if (!first) text_ += "}";
    if (node.generation != 0) text_ += " generation " + std::to_string(node.generation);
    if (!node.regions.empty()) {
      text_ += " {\n";
      for (const auto& region : node.regions) inner_graph(*region, depth);
      indent(depth);
      text_ += "}";
    }
    if (rule != nullptr && with_rules_ && rules_ < most_rules_in_rules) {
      text_ += " rule {\n";
      ++rules_;
      inner_graph(*rule->get(), depth);
      --rules_;
      indent(depth);
      text_ += "}";
    }
    text_ += "\n";
  }
  void inner_graph(const Graph& g, int depth) {
    indent(depth + 1);
    graph(g, depth + 1);
    text_ += "\n";
  }

  // A rule that calls its own function, whose rule calls it again, has no end.
  static constexpr int most_rules_in_rules = 3;

  bool with_rules_;
  int rules_ = 0;  // around this line
  std::string text_;
  std::map<std::pair<int, int>, int> numbers_;
  int count_ = 0;
};

}  // namespace

namespace {
std::string text(const Graph& graph, bool with_rules) {
  Printer printer(with_rules);
  printer.graph(graph, 0);
  return printer.take() + "\n";
}
}  // namespace

std::string print(const Graph& graph) { return text(graph, true); }
std::string print_without_rules(const Graph& graph) { return text(graph, false); }

}  // namespace hotloop::ir
