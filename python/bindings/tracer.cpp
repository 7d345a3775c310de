#include "tracer.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "depth.h"
#include "gil.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/affine_places.h"

namespace hotloop::python {
namespace {

constexpr std::int64_t max_constant_size = 64;
constexpr const char* in_a_list = " in a list of numbers";

thread_local Program* g_program = nullptr;
thread_local std::shared_ptr<Scope> g_scope;
thread_local UsesOfSurroundings* g_uses = nullptr;
thread_local const InPlaceOfSurroundings* g_in_place = nullptr;
std::atomic<std::uint64_t> g_num_scopes = 0;

Tracer living(Tracer t) {
  const std::optional<Value> value = g_in_place == nullptr ? std::nullopt : g_in_place->of(t);
  if (value)
    t = {*value, g_scope, t.weak, t.is_wide};
  else if (t.scope == nullptr || !t.scope->alive)
    throw UserError("trace", "a traced value may be used only while its function is traced",
                    "a value kept from an earlier trace", "return it from the function, or carry it through scan");
  return t;
}

// The same of one that is computed with.
Tracer used(const Tracer& was) {
  Tracer t = living(was);
  UsesOfSurroundings::note({.was = was.value, .scope = was.scope->number, .array = {}}, t.value);
  return t;
}

// A large array is an input of the program, and one of a function that is traced later is among its inputs, or a constant.
Value lifted(const Array& array) {
  if (g_in_place != nullptr) {
    const std::optional<Value> value = g_in_place->of(array);
    if (!value) return constant(snapshot(array));
    UsesOfSurroundings::note({.was = {}, .array = array}, *value);
    return *value;
  }
  // The engine's own traces (of a fit) have no place for arrays but their constants.
  if (g_program == nullptr) return constant(snapshot(array));
  const Value value = g_program->lift(array);
  const Array kept = g_program->lifted_from(value);
  if (kept.defined()) UsesOfSurroundings::note({.was = {}, .array = kept}, value);
  return value;
}

bool same_numbers(const Array& a, const Array& b) {
  return a.type() == b.type() && (a.raw() == b.raw() || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

// Of a number that meets none: that of the Array which it would be (to_array).
DType default_dtype(const Tracer& t) {
  const DType dtype = t.value.dtype();
  if (!t.weak) return dtype;
  return dtype == DType::F64 ? DType::F32 : dtype == DType::I64 && !t.is_wide ? DType::I32 : dtype;
}

// A weak value in `dtype`, or a strong one cast. What is known not to fit is refused, as a number in the function is.
Value fitted(const Tracer& tracer, DType dtype, const std::string& where) {
  const Tracer t = used(tracer);
  if (t.is_wide && dtype == DType::I32)
    throw UserError(where, "a number must fit the array's dtype", "an integer of more than 32 bits with i32",
                    "an array of int64");
  if (t.weak && g_program != nullptr) g_program->must_fit(t.value, dtype, where);
  return cast(t.value, dtype);
}

// A Python number or a weak tracer in the dtype of what it met.
Value number_as(nb::handle object, DType dtype, const std::string& where) {
  if (is_tracer(object)) return fitted(nb::cast<const Tracer&>(object), dtype, where);
  return constant(number_in(object, dtype, where));
}

bool holds_tracer(nb::handle object) {
  if (!PyList_Check(object.ptr()) && !PyTuple_Check(object.ptr())) return is_tracer(object);
  const Depth depth(in_a_list);
  for (const nb::handle item : object)
    if (holds_tracer(item)) return true;
  return false;
}

nb::tuple shape_of(const Tracer& t) {
  nb::list dims;
  const Shape shape = living(t).value.shape();
  for (const std::int64_t d : shape.dims()) dims.append(d);
  return nb::tuple(dims);
}

}  // namespace

Scope::Scope() : number(g_num_scopes++) {}

UsesOfSurroundings::UsesOfSurroundings() : first_scope_(g_num_scopes), previous_(std::exchange(g_uses, this)) {}
UsesOfSurroundings::~UsesOfSurroundings() { g_uses = previous_; }

void UsesOfSurroundings::note(const Surroundings::Use& use, Value now) {
  const auto is_it = [&](const std::pair<Surroundings::Use, Value>& noted) {
    const Surroundings::Use& other = noted.first;
    return other.was == use.was && other.scope == use.scope && other.array.raw() == use.array.raw() &&
           noted.second == now;
  };
  const UsesOfSurroundings* noted = g_in_place == nullptr ? nullptr : g_in_place->noted(now);
  for (UsesOfSurroundings* u = g_uses; u != noted; u = u->previous_)
    if ((use.array.defined() || use.scope < u->first_scope_) && std::ranges::none_of(u->uses_, is_it))
      u->uses_.emplace_back(use, now);
}

Surroundings UsesOfSurroundings::among(std::span<const Value> captures) const {
  Surroundings surroundings;
  for (const auto& [use, now] : uses_) {
    const auto it = std::ranges::find(captures, current_graph().capture(now));
    if (it == captures.end()) continue;
    surroundings.uses.push_back(use);
    surroundings.uses.back().place = static_cast<std::size_t>(it - captures.begin());
  }
  return surroundings;
}

InPlaceOfSurroundings::InPlaceOfSurroundings(const Surroundings& surroundings, std::span<const Value> values)
    : surroundings_(surroundings), values_(values), previous_(std::exchange(g_in_place, this)), around_(g_uses) {}
InPlaceOfSurroundings::~InPlaceOfSurroundings() { g_in_place = previous_; }

const UsesOfSurroundings* InPlaceOfSurroundings::noted(Value value) const {
  return std::ranges::find(values_, value) == values_.end() ? nullptr : around_;
}

std::optional<Value> InPlaceOfSurroundings::of(const Tracer& tracer) const {
  if (tracer.scope == nullptr) return std::nullopt;
  for (const Surroundings::Use& use : surroundings_.uses)
    if (use.was == tracer.value && use.scope == tracer.scope->number) return values_[use.place];
  return std::nullopt;
}

std::optional<Value> InPlaceOfSurroundings::of(const Array& array) const {
  for (const Surroundings::Use& use : surroundings_.uses)
    if (use.array.defined() && same_numbers(use.array, array)) return values_[use.place];
  return std::nullopt;
}

Program::Program(const std::string& name)
    : graph_(std::make_shared<Graph>(name)),
      trace_(*graph_),
      scope_(std::make_shared<Scope>()),
      previous_scope_(std::exchange(g_scope, scope_)),
      previous_(std::exchange(g_program, this)) {}

Program::~Program() {
  scope_->alive = false;
  g_scope = std::move(previous_scope_);
  g_program = previous_;
}

ScopeGuard::ScopeGuard() : previous_(std::exchange(g_scope, std::make_shared<Scope>())) {}
ScopeGuard::~ScopeGuard() {
  g_scope->alive = false;
  g_scope = std::move(previous_);
}

namespace {

// An array that counts, as arange does, known as such: what is at places that are computed from it is found without looking these up.
std::optional<Value> counting(const Array& array) {
  const std::optional<ir::AffinePlaces> places = ir::affine_places(array);
  if (!places || array.shape().rank() != 1 || places->strides[0] < 1) return {};
  const Value count = iota(array.dtype(), array.shape(), 0);
  return (places->strides[0] == 1 ? count : count * places->strides[0]) + places->offset;
}

}  // namespace

Value Program::lift(const Array& array) {
  if (array.size() <= max_constant_size) return constant(snapshot(array));
  if (const std::optional<Value> count = counting(array)) return *count;
  // A function that makes an array each time it is called (an eye, a table) is often traced more than once: equal numbers are one input, so that what
  // is computed of them is equal too. The object that they came in says nothing: it may hold other numbers by now.
  for (std::size_t i = 0; i < lifted_.size(); ++i)
    if (same_numbers(lifted_[i], array)) return lifted_values_[i];
  lifted_.push_back(snapshot(array));
  lifted_values_.push_back(graph_->add_input(array.type(), "captured" + std::to_string(lifted_.size() - 1)));
  return lifted_values_.back();
}

Array Program::lifted_from(Value value) const {
  const auto it = std::ranges::find(lifted_values_, value);
  return it == lifted_values_.end() ? Array() : lifted_[static_cast<std::size_t>(it - lifted_values_.begin())];
}

void Program::must_fit(Value number, DType dtype, const std::string& where) {
  // What i32 does not hold is_wide tells; i64 holds every integer.
  const bool always = is_float(dtype) || dtype == DType::Bool ||
                      (number.dtype() == DType::I64 && (dtype == DType::I32 || dtype == DType::I64));
  const auto is_it = [&](const Limit& limit) { return limit.number == number && limit.dtype == dtype; };
  if (!always && std::ranges::none_of(limits_, is_it)) limits_.push_back({number, dtype, where});
}

Array lifted_from(Value value) { return g_program == nullptr ? Array() : g_program->lifted_from(value); }

bool is_tracer(nb::handle object) { return nb::isinstance<Tracer>(object); }

nb::object tracer(Value value, bool weak, bool is_wide) { return nb::cast(Tracer{value, g_scope, weak, is_wide}); }

bool any_is_wide(std::span<const nb::handle> operands) {
  return std::ranges::any_of(operands, [](nb::handle object) {
    if (is_tracer(object)) return nb::cast<const Tracer&>(object).is_wide;
    if (number_kind(object.ptr()) != Number::Int) return false;
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    return overflow != 0 || value != static_cast<std::int32_t>(value);
  });
}

nb::list to_tracers(std::span<const Value> values) {
  nb::list list;
  for (const Value& v : values) list.append(v.defined() ? tracer(v) : nb::none());
  return list;
}

Value to_value(nb::handle object, const std::string& what) {
  if (is_tracer(object)) {
    const Tracer t = used(nb::cast<const Tracer&>(object));
    return cast(t.value, default_dtype(t));
  }
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
    // A sequence that holds traced values is stacked.
    const Depth depth(in_a_list);
    std::vector<nb::handle> items;
    bool traced = false;
    for (const nb::handle item : object) {
      items.push_back(item);
      traced = traced || is_tracer(item) || PyList_Check(item.ptr()) || PyTuple_Check(item.ptr());
    }
    if (traced) {
      std::vector<nb::object> rows;
      for (nb::handle& item : items)
        if (PyList_Check(item.ptr()) || PyTuple_Check(item.ptr()))
          item = rows.emplace_back(tracer(to_value(item, what)));
      return stack(promote(what, items), 0);
    }
  }
  if (!is_tracing())
    throw UserError(what, "operations on traced values need a trace", "no trace in progress", "hl.jit");
  return lifted(to_array(object, what));
}

Value to_value_in(nb::handle object, DType dtype, const std::string& what, bool must_fit) {
  if (is_tracer(object)) {
    const Tracer& t = nb::cast<const Tracer&>(object);
    return must_fit ? fitted(t, dtype, what) : cast(used(t).value, dtype);
  }
  const Number kind = number_kind(object.ptr());
  const bool sequence = PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
  if (!is_tracing() || (kind == Number::None && !sequence)) return cast(to_value(object, what), dtype);
  if (holds_tracer(object)) {
    const Depth depth(in_a_list);
    std::vector<Value> rows;
    for (const nb::handle item : object) rows.push_back(to_value_in(item, dtype, what, must_fit));
    return stack(rows, 0);
  }
  if (kind != Number::None && must_fit) return constant(number_in(object, dtype, what));
  return lifted(to_array(object, what, Digits::All).cast(dtype));
}

std::vector<Value> to_values(nb::handle sequence, const std::string& what) {
  std::vector<Value> values;
  for (const nb::handle item : sequence) values.push_back(to_value(item, what));
  return values;
}

std::vector<Value> or_undefined(nb::handle sequence, const std::string& what) {
  std::vector<Value> values;
  for (const nb::handle item : sequence) values.push_back(item.is_none() ? Value{} : to_value(item, what));
  return values;
}

TracedFunction traced_function(nb::callable fn) {
  return [fn = shared(fn)](std::span<const Value> inputs) {
    const ScopeGuard scope;
    return to_values(nb::handle(fn.get())(to_tracers(inputs)), "trace");
  };
}

// bool < i32, u32 < i64 < f32 < f64; i32 with u32 gives i64.
DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if ((a == DType::I32 && b == DType::U32) || (a == DType::U32 && b == DType::I32)) return DType::I64;
  return std::max(a, b);  // the enumeration is in this order
}
static_assert(DType::Bool < DType::I32 && DType::I32 < DType::U32 && DType::U32 < DType::I64 &&
              DType::I64 < DType::F32 && DType::F32 < DType::F64);

std::vector<Value> promote(const std::string& where, std::span<const nb::handle> operands, bool floats) {
  std::optional<DType> strong, weak;
  const auto join = [](std::optional<DType>& all, DType dtype) { all = all ? promote_types(*all, dtype) : dtype; };
  std::vector<Value> values(operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    switch (number_kind(operands[i].ptr())) {
      case Number::Float: join(weak, DType::F32); continue;
      case Number::Int: join(weak, any_is_wide({&operands[i], 1}) ? DType::I64 : DType::I32); continue;
      case Number::Bool: join(weak, DType::Bool); continue;
      case Number::None: break;
    }
    if (is_tracer(operands[i])) {
      const Tracer t = used(nb::cast<const Tracer&>(operands[i]));
      if (t.weak) {
        join(weak, default_dtype(t));
        continue;
      }
      values[i] = t.value;
    } else {
      values[i] = to_value(operands[i], where);
    }
    join(strong, values[i].dtype());
  }
  // A weak operand raises the dtype only to another kind: bool, integer, float.
  DType dtype = strong.value_or(weak.value_or(DType::F32));
  if (weak && is_float(*weak) && !is_float(dtype)) dtype = DType::F32;
  if (weak && is_integer(*weak) && dtype == DType::Bool) dtype = *weak;
  if (floats && !is_float(dtype)) dtype = DType::F32;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!values[i].defined())
      values[i] = number_as(operands[i], dtype, where);
    else if (values[i].dtype() != dtype)
      values[i] = cast(values[i], dtype);
  }
  return values;
}

std::optional<std::vector<Value>> traced_numbers(const std::string& where, std::span<const nb::handle> operands,
                                                 bool floats) {
  bool traced = false;
  for (const nb::handle operand : operands) {
    if (is_tracer(operand)) {
      const Tracer t = used(nb::cast<const Tracer&>(operand));
      if (!t.weak || t.value.dtype() == DType::Bool) return std::nullopt;
      traced = true;
      floats = floats || is_float(t.value.dtype());
    } else {
      const Number kind = number_kind(operand.ptr());
      if (kind != Number::Int && kind != Number::Float) return std::nullopt;
      floats = floats || kind == Number::Float;
    }
  }
  if (!traced) return std::nullopt;
  std::vector<Value> values;
  for (const nb::handle operand : operands)
    values.push_back(number_as(operand, floats ? DType::F64 : DType::I64, where));
  return values;
}

void bind_tracer(nb::module_& m) {
  nb::class_<Tracer>(m, "Tracer", "A value of a program under trace: it has a shape and a dtype, and no numbers yet.")
      .def_prop_ro("shape", &shape_of, "Extents, outermost first.")
      .def_prop_ro(
          "ndim", [](const Tracer& t) { return living(t).value.rank(); }, "Number of axes.")
      .def_prop_ro(
          "size", [](const Tracer& t) { return living(t).value.shape().size(); }, "Number of elements.")
      .def_prop_ro(
          "dtype", [](const Tracer& t) { return numpy_dtype(default_dtype(living(t))); }, "The NumPy dtype.")
      .def_prop_ro("weak", [](const Tracer& t) { return t.weak; })
      .def_prop_ro("_type", [](const Tracer& t) { return living(t).value.type().str(); });
  m.def("is_tracing", [] { return is_tracing(); });
  m.def(
      "is_tracer", [](nb::handle object) { return is_tracer(object); }, nb::arg("object").none());
  m.def(
      "to_tracer",
      [](nb::handle object, const std::string& what) {
        return is_tracer(object) && !nb::cast<const Tracer&>(object).weak ? nb::borrow(object)
                                                                          : tracer(to_value(object, what));
      },
      nb::arg("object").none(), nb::arg("what") = "asarray");
  m.def(
      "promote",
      [](const std::string& where, const std::vector<nb::handle>& operands, bool floats) {
        return to_tracers(promote(where, operands, floats));
      },
      nb::arg("where"), nb::arg("operands"), nb::arg("floats") = false);
  m.def("promote_types",
        [](nb::handle a, nb::handle b) { return numpy_dtype(promote_types(dtype_of_python(a), dtype_of_python(b))); });
}

}  // namespace hotloop::python
