// Tracer: a value of a graph under trace, as Python sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "bindings.h"
#include "hotloop/graph.h"

namespace hotloop::python {

// One Python function being traced. Its tracers are valid until it returns (those of a program: until the program is traced).
struct Scope {
  Scope();
  std::uint64_t number;  // of all that were ever made
  bool alive = true;
};

// Tracers made while it lives end with it.
class ScopeGuard {
 public:
  ScopeGuard();
  ~ScopeGuard();
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  std::shared_ptr<Scope> previous_;
};

struct Tracer {
  Value value;
  std::shared_ptr<Scope> scope;
  // Made from a Python number: takes the dtype of what it meets. Then its dtype is f64 or i64.
  bool weak = false;
  bool is_wide = false;  // weak, and known to be an integer that i32 does not hold
};

// A whole program under trace: the outermost graph, and arrays of the surroundings that became inputs of it.
class Program {
 public:
  explicit Program(const std::string& name);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  Graph& graph() { return *graph_; }
  std::shared_ptr<Graph> shared_graph() { return graph_; }
  // `array` as a value: a small one as a constant, else an input, so that programs do not hold copies of data.
  Value lift(const Array& array);
  const std::vector<Array>& lifted() const { return lifted_; }
  // The array that a value was lifted from; undefined for any other value.
  Array lifted_from(Value value) const;

  // A Python number that the program takes in `dtype`, if it is an argument: what does not fit a call must refuse, as a trace does of one it knows.
  struct Limit {
    Value number;
    DType dtype;
    std::string where;
  };
  void must_fit(Value number, DType dtype, const std::string& where);
  const std::vector<Limit>& limits() const { return limits_; }

 private:
  std::shared_ptr<Graph> graph_;
  TraceScope trace_;
  std::shared_ptr<Scope> scope_;
  std::shared_ptr<Scope> previous_scope_;
  Program* previous_;
  std::vector<Array> lifted_;
  std::vector<Value> lifted_values_;
  std::vector<Limit> limits_;
};

// The array that a value of the program under trace was lifted from, which no call changes; undefined for any other value.
Array lifted_from(Value value);

// What a function uses of its surroundings: traced values of enclosing functions, and arrays that became inputs of the program. It can be traced again when
// those are gone, as a rule is where a derivative is taken: with other values in their places.
struct Surroundings {
  struct Use {
    Value was;                // to be told apart only: its graph may be gone
    std::uint64_t scope = 0;  // of the tracer
    Array array;              // or this
    std::size_t place = 0;
  };
  std::vector<Use> uses;
};

// Takes down what is used of the surroundings while it lives.
class UsesOfSurroundings {
 public:
  UsesOfSurroundings();
  ~UsesOfSurroundings();
  UsesOfSurroundings(const UsesOfSurroundings&) = delete;
  UsesOfSurroundings& operator=(const UsesOfSurroundings&) = delete;
  // `now`: what is computed with. What stands in the place of it has been taken down by whoever lived when the call was traced that has it as an operand.
  static void note(const Surroundings::Use& use, Value now);
  // Those that are among `captures`, which are of the current graph, with their places there.
  Surroundings among(std::span<const Value> captures) const;

 private:
  std::vector<std::pair<Surroundings::Use, Value>> uses_;
  std::uint64_t first_scope_;
  UsesOfSurroundings* previous_;
};

// While it lives, `values` stand for what is used of the surroundings.
class InPlaceOfSurroundings {
 public:
  InPlaceOfSurroundings(const Surroundings& surroundings, std::span<const Value> values);
  ~InPlaceOfSurroundings();
  InPlaceOfSurroundings(const InPlaceOfSurroundings&) = delete;
  InPlaceOfSurroundings& operator=(const InPlaceOfSurroundings&) = delete;
  std::optional<Value> of(const Tracer& tracer) const;
  std::optional<Value> of(const Array& array) const;
  // Those who have taken down the uses that `value` stands for, from the innermost on; none if it stands for nothing.
  const UsesOfSurroundings* noted(Value value) const;

 private:
  const Surroundings& surroundings_;
  std::span<const Value> values_;
  const InPlaceOfSurroundings* previous_;
  const UsesOfSurroundings* around_;
};

nb::object tracer(Value value, bool weak = false, bool is_wide = false);
// Whether an integer among these, Python's or a weak one, is known not to fit i32.
bool any_is_wide(std::span<const nb::handle> operands);
// The value of a tracer, or of anything that to_array takes, in the current trace. A weak one gets its default dtype.
Value to_value(nb::handle object, const std::string& what);
std::vector<Value> to_values(nb::handle sequence, const std::string& what);
// The value in `dtype`, made of all digits that Python's numbers, lists of them and weak tracers have. `must_fit`: UserError for a Python number that is
// none of the dtype's (number_in), which else is cast.
Value to_value_in(nb::handle object, DType dtype, const std::string& what, bool must_fit = false);
// The same with undefined values for None.
std::vector<Value> or_undefined(nb::handle sequence, const std::string& what);
nb::list to_tracers(std::span<const Value> values);
bool is_tracer(nb::handle object);

// `fn`, which takes and gives lists of tracers, as a function that transforms take.
TracedFunction traced_function(nb::callable fn);

// Operands on one dtype by the promotion table (see hotloop.result_type): Python numbers and weak tracers follow the others.
std::vector<Value> promote(const std::string& where, std::span<const nb::handle> operands, bool floats = false);
// The operands as f64 or i64 scalars, if they are all Python numbers and one of them at least is traced; bools are no numbers here.
std::optional<std::vector<Value>> traced_numbers(const std::string& where, std::span<const nb::handle> operands,
                                                 bool floats);
DType promote_types(DType a, DType b);

}  // namespace hotloop::python
