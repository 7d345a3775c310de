// Reads the text form that print.cpp writes. Result types are written out for the reader; here they are checked
// against what the op's rule infers.
#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>
#include <optional>

#include "core/nearest.h"
#include "hotloop/error.h"
#include "ir/op_def.h"

namespace hotloop::ir {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::shared_ptr<Graph> whole() {
    auto g = graph();
    skip_space();
    if (at_ != text_.size()) fail("nothing may follow the closing brace of the graph");
    return g;
  }

 private:
  [[noreturn]] void fail(const std::string& requirement) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    const std::size_t end = text_.find('\n', at_);
    throw UserError("parse, line " + std::to_string(line), requirement,
                    at_ == text_.size()
                        ? "the end of the text"
                        : "'" + std::string(text_.substr(at_, std::min(end - at_, std::size_t{40}))) + "'");
  }

  void skip_space() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0)
        ++at_;
      else if (text_.substr(at_, 2) == "//")
        at_ = std::min(text_.find('\n', at_), text_.size());
      else
        break;
    }
  }
  bool accept(std::string_view token) {
    skip_space();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("'" + std::string(token) + "' must stand here");
  }
  static bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' || c == '/';
  }
  std::string_view word() {
    skip_space();
    const std::size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == start) fail("a name must stand here");
    return text_.substr(start, at_ - start);
  }
  std::string string() {
    expect("\"");
    std::string s;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\' && ++at_ < text_.size() && text_[at_] == 'n')
        s += '\n';
      else if (at_ < text_.size())
        s += text_[at_];
    }
    expect("\"");
    return s;
  }
  std::string name() {
    skip_space();
    return at_ < text_.size() && text_[at_] == '"' ? string() : std::string(word());
  }

  template <class T> T number() {
    skip_space();
    if constexpr (std::is_floating_point_v<T>) {
      if (text_.substr(at_).starts_with("nan:")) {
        at_ += 4;
        using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
        return std::bit_cast<T>(number<Bits>());
      }
      if (text_.substr(at_).starts_with("nan")) {
        at_ += 3;
        return std::numeric_limits<T>::quiet_NaN();
      }
    }
    T value{};
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("a number must stand here");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  ValueType type() {
    const std::string_view dtype = word();
    ValueType t{dtype_from_name(std::string(dtype)), {}};
    t.shape = Shape(integers());
    return t;
  }
  std::vector<std::int64_t> integers() {
    std::vector<std::int64_t> values;
    expect("[");
    if (accept("]")) return values;
    do values.push_back(number<std::int64_t>());
    while (accept(","));
    expect("]");
    return values;
  }

  Array array(const ValueType& t) {
    expect("{");
    Array a(t.dtype, t.shape);
    visit_dtype(t.dtype, [&](auto tag) {
      using T = decltype(tag);
      T* data = static_cast<T*>(a.raw());
      for (std::int64_t i = 0; i < a.size(); ++i) {
        if (i) {
          if (i == 1 && accept("...")) {
            std::fill(data + 1, data + a.size(), data[0]);
            break;
          }
          expect(",");
        }
        if constexpr (std::is_same_v<T, std::uint8_t>)
          data[i] = number<unsigned>() != 0;
        else
          data[i] = number<T>();
      }
    });
    expect("}");
    return a;
  }

  Attr attr() {
    skip_space();
    if (at_ == text_.size()) fail("an attribute's value must stand here");
    const char c = text_[at_];
    if (c == '"') return string();
    if (c == '[') return integers();
    const std::size_t start = at_;
    const std::string_view w = word();
    if (w == "true" || w == "false") return w == "true";
    if (w == "inf" || w == "-inf" || w == "nan") {
      at_ = start;
      return number<double>();
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '-') {
      std::size_t end = at_;
      if (w.back() == 'e' && end < text_.size() && text_[end] == '+') ++end;
      at_ = start;
      if (w.find_first_of(".e") != std::string_view::npos) return number<double>();
      return number<std::int64_t>();
    }
    at_ = start;
    const DType dtype = dtype_from_name(std::string(word()));
    if (at_ < text_.size() && text_[at_] == '[') return array({dtype, Shape(integers())});
    return dtype;
  }

  int value_number() {
    expect("%");
    return number<int>();
  }
  void define(std::vector<Value>& values, int number, Value v) {
    if (number != static_cast<int>(values.size())) fail("values must be numbered in order");
    values.push_back(v);
  }
  Value use(const std::vector<Value>& values) {
    const std::size_t start = at_;
    const int n = value_number();
    if (n < 0 || n >= static_cast<int>(values.size())) {
      at_ = start;
      fail("a value must be defined before it is used");
    }
    return values[static_cast<std::size_t>(n)];
  }

  std::shared_ptr<Graph> graph() {
    auto g = std::make_shared<Graph>(name());
    std::vector<Value> values;
    expect("(");
    if (!accept(")")) {
      do {
        const int n = value_number();
        expect(":");
        const ValueType t = type();
        skip_space();
        const bool named = at_ < text_.size() && text_[at_] != ',' && text_[at_] != ')';
        define(values, n, g->add_input(t, named ? name() : ""));
      } while (accept(","));
      expect(")");
    }
    expect("{");
    while (!accept("return")) line(*g, values);
    std::vector<Value> outputs;
    skip_space();
    if (at_ < text_.size() && text_[at_] == '%') {
      do outputs.push_back(use(values));
      while (accept(","));
    }
    g->set_outputs(std::move(outputs));
    expect("}");
    return g;
  }

  void line(Graph& g, std::vector<Value>& values) {
    std::vector<int> numbers;
    std::vector<ValueType> types;
    skip_space();
    const std::size_t start = at_;
    do {
      numbers.push_back(value_number());
      expect(":");
      types.push_back(type());
    } while (accept(","));
    expect("=");
    const OpDef& def = op(word());
    if (def.kind == OpKind::Input) fail("inputs stand in the heading of the graph");
    std::vector<Value> operands;
    expect("(");
    if (!accept(")")) {
      do operands.push_back(use(values));
      while (accept(","));
      expect(")");
    }
    Attrs attrs;
    std::vector<std::shared_ptr<const Graph>> regions;
    int generation = 0;
    bool more = accept("{");
    if (more && is_attribute()) {
      do {
        const std::string key = name();
        expect("=");
        attrs.set(key, attr());
      } while (accept(","));
      expect("}");
      more = false;
    }
    if (!more && accept("generation")) generation = number<int>();
    if (more || accept("{")) {
      while (!accept("}")) regions.push_back(graph());
    }
    if (accept("rule")) {
      expect("{");
      attrs.set(jvp_rule_attr, std::make_shared<const LazyGraph>(graph()));
      expect("}");
    }
    Node* node = nullptr;
    try {
      node = g.append(def, std::move(operands), std::move(attrs), std::move(regions), generation);
    } catch (const InternalError&) {  // of a program it would be a defect of ours; of a text it is a mistake in it
      at_ = start;
      fail("operands, attributes and regions must be those that " + def.name + " takes");
    }
    if (node->types != types) {
      at_ = start;
      std::string inferred;
      for (const ValueType& t : node->types) inferred += (inferred.empty() ? "" : ", ") + t.str();
      fail("the types must be those that " + def.name + " infers, " + inferred);
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) define(values, numbers[i], node->result(static_cast<int>(i)));
  }

  // After the opening brace: `name=` starts attributes, `name(` a region.
  bool is_attribute() {
    const std::size_t start = at_;
    name();
    skip_space();
    const bool result = at_ < text_.size() && text_[at_] == '=';
    at_ = start;
    return result;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::shared_ptr<Graph> parse(std::string_view text) { return Parser(text).whole(); }

}  // namespace hotloop::ir
