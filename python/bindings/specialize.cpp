#include "specialize.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "gil.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "interrupt.h"
#include "runtime/executable.h"
#include "tracer.h"

namespace hotloop::python {
namespace {

// Below this many flops and bytes (some microseconds) handing the GIL over and taking Ctrl-C in hand cost more than a tenth of the work.
constexpr double work_to_release_gil = 5e5;

// The bound argument with values of the program in the places of its arrays.
nb::object bound_tracers(Program& program, const BoundArgument& bound) {
  const auto paths = leaf_paths(bound.structure);
  std::vector<nb::object> tracers;
  for (std::size_t i = 0; i < bound.arrays.size(); ++i)
    tracers.push_back(tracer(program.graph().add_input(bound.arrays[i].type(), "bound" + paths[i])));
  return unflatten(bound.structure, tracers);
}

thread_local std::vector<std::unique_ptr<Arguments>> g_free;

}  // namespace

ArgumentsLease::ArgumentsLease() {
  if (g_free.empty()) {
    arguments_ = new Arguments;
  } else {
    arguments_ = g_free.back().release();
    g_free.pop_back();
  }
}

ArgumentsLease::~ArgumentsLease() {
  arguments_->clear();
  g_free.emplace_back(arguments_);
}

void Arguments::clear() {
  FlatTree::clear();
  leaves.clear();
  results.clear();
  donated.clear();
  taken.clear();
  held.clear();
}

void Arguments::read_leaves(const std::string& where) {
  leaves.resize(objects.size());
  for (std::size_t i = 0; i < objects.size(); ++i) {
    Leaf& leaf = leaves[i];
    leaf.weak = leaf.is_wide = false;
    PyObject* object = objects[i];
    if (view_array(object, leaf.view)) continue;
    leaf.view = {&leaf.real, nullptr, 0, DType::F64};
    switch (number_kind(object)) {
      case Number::Float:
        leaf.real = PyFloat_AS_DOUBLE(object);
        leaf.weak = true;
        continue;
      case Number::Int:
        leaf.integer = PyLong_AsLongLong(object);
        if (leaf.integer == -1 && PyErr_Occurred() != nullptr) {
          PyErr_Clear();
          throw UserError(where, "an integer argument must fit 64 bits",
                          nb::cast<std::string>(nb::str(nb::handle(object))), "float(x), which rounds it");
        }
        leaf.view.dtype = DType::I64;
        leaf.weak = true;
        leaf.is_wide = leaf.integer != static_cast<std::int32_t>(leaf.integer);
        continue;
      case Number::Bool:
        leaf.boolean = object == Py_True;
        leaf.view.dtype = DType::Bool;
        continue;
      case Number::None: break;
    }
    if (is_tracer(object))
      throw UserError(where, "a traced value may be used only while its function is traced",
                      "a value kept from an earlier trace", "return it from the function, or carry it through scan");
    if (!is_array_like(object))
      throw UserError(where, "argument " + leaf_paths(Structure(tokens))[i] + " must be an array or a number",
                      kind_of(object), "name it in static_argnames, if the function is to be compiled for its value");
    leaf.converted = to_array(object, where);
    leaf.view = {leaf.converted.raw(), leaf.converted.shape().dims().data(), leaf.converted.shape().rank(),
                 leaf.converted.dtype()};
  }
}

std::size_t Arguments::hash() const {
  std::size_t h = hash_of(tokens);
  const auto mix = [&](std::size_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15u; };
  for (const Leaf& leaf : leaves) {
    mix(static_cast<std::size_t>(leaf.view.dtype) * 64 + static_cast<std::size_t>(leaf.view.rank) * 4 + leaf.weak * 2u +
        leaf.is_wide);
    for (int i = 0; i < leaf.view.rank; ++i) mix(static_cast<std::size_t>(leaf.view.dims[i]));
  }
  return h;
}

Specialization::Specialization(nb::handle fn, const std::string& name, const Arguments& arguments, Structure structure,
                               CompileOptions options, const BoundArgument* bound)
    : name_(name), structure_(std::move(structure)), is_bound_(bound != nullptr) {
  const auto start = std::chrono::steady_clock::now();
  for (const Leaf& leaf : arguments.leaves) types_.push_back({leaf.view.type(), leaf.weak, leaf.is_wide});
  std::shared_ptr<Graph> graph;
  {
    Program program(name);
    const auto paths = leaf_paths(structure_);
    nb::tuple first;
    if (bound != nullptr) first = nb::make_tuple(bound_tracers(program, *bound));
    std::vector<Value> inputs;
    std::vector<nb::object> tracers;
    for (std::size_t i = 0; i < types_.size(); ++i) {
      inputs.push_back(program.graph().add_input(types_[i].type, paths[i]));
      tracers.push_back(tracer(inputs.back(), types_[i].weak, types_[i].is_wide));
    }
    const nb::object call = unflatten(Structure(arguments.tokens), tracers);
    const nb::object args = first + nb::object(call[0]);
    const nb::object result = checked(PyObject_Call(fn.ptr(), args.ptr(), nb::object(call[1]).ptr()));
    const auto [leaves, tree] = flatten(result);
    result_structure_ = tree;
    one_result_ = tree.tokens().size() == 1 && leaves.size() == 1;
    std::vector<Value> outputs;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (!is_tracer(leaves[i]) && !is_array_like(leaves[i]))
        throw UserError(name, "a compiled function must return arrays, in dicts, lists, tuples or dataclasses",
                        "result" + leaf_paths(tree)[i] + " = a " +
                            nb::cast<std::string>(
                                nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(leaves[i].ptr()))).attr("__name__")),
                        "leave it out of what the function returns");
      outputs.push_back(program.graph().capture(to_value(leaves[i], name)));
    }
    program.graph().set_outputs(std::move(outputs));
    lifted_ = program.lifted();
    for (const Program::Limit& limit : program.limits())
      if (const auto input = std::ranges::find(inputs, limit.number); input != inputs.end())
        limits_.push_back({static_cast<std::size_t>(input - inputs.begin()), limit.dtype, limit.where});
    graph = program.shared_graph();
  }
  {
    if (options.threads < 0) options.threads = 0;  // the engine takes no more than a call is worth
    const std::size_t num_before = bound == nullptr ? 0 : bound->arrays.size();
    for (const std::size_t leaf : arguments.donated)
      if (!types_[leaf].weak) options.donated.push_back(static_cast<int>(num_before + leaf));
    if (bound == nullptr) {
      run_interruptibly([&] { executable_ = compile(graph, options); });
    } else {
      std::vector<Array> values = bound->arrays;
      values.resize(values.size() + types_.size());  // the arguments stay open
      values.insert(values.end(), lifted_.begin(), lifted_.end());
      run_interruptibly([&] { executable_ = compile_bound(graph, values, options); });
    }
  }
  const Executable::Impl& impl = executable_->impl();
  if (!arguments.donated.empty())
    for (std::size_t r = 0; r < impl.outputs.size(); ++r) {
      const int input = impl.input_of(r);
      const auto at = std::ranges::find(arguments.donated, static_cast<std::size_t>(input));
      taken_over_.push_back(input < 0 ? -1 : static_cast<int>(at - arguments.donated.begin()));
    }
  rows_ = impl.max_rows;
  work_ = impl.program.arithmetic.flops + impl.bytes;
  compile_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Specialization Specialization::rebound(const BoundArgument& bound) const {
  Specialization other = *this;
  other.structure_ = structure_.clone();
  other.result_structure_ = result_structure_.clone();
  std::vector<Array> values = bound.arrays;
  values.insert(values.end(), lifted_.begin(), lifted_.end());
  const GilReleased released;
  other.executable_ = rebind(*executable_, values);
  return other;
}

bool Specialization::accepts(const Arguments& arguments) const {
  if (arguments.leaves.size() != types_.size()) return false;
  for (std::size_t i = 0; i < types_.size(); ++i)
    if (!types_[i].fits(arguments.leaves[i])) return false;
  return structure_.equals(arguments.tokens);
}

int Specialization::traverse(visitproc visit, void* arg) const {
  const int status = structure_.traverse(visit, arg);
  return status != 0 ? status : result_structure_.traverse(visit, arg);
}

std::string Specialization::difference(const Arguments& arguments) const {
  if (arguments.leaves.size() != types_.size() || !structure_.equals(arguments.tokens))
    return "another argument structure or static value";
  for (std::size_t i = 0; i < types_.size(); ++i)
    if (!types_[i].fits(arguments.leaves[i]))
      return "argument " + leaf_paths(structure_)[i] + ": " + types_[i].type.str() + " before, now " +
             arguments.leaves[i].view.type().str();
  return "";
}

void Specialization::take_donated(Arguments& a) const {
  std::vector<const void*> given;
  for (const std::size_t leaf : a.donated) {
    if (types_[leaf].weak) continue;  // a number has no memory
    given.push_back(donatable_array(a.objects[leaf], name_, leaf_paths(structure_)[leaf]).raw());
  }
  // One object given twice: its second place would read what the first one's output is written to.
  std::ranges::sort(given);
  std::size_t num_places = 0;
  for (const Leaf& leaf : a.leaves) num_places += std::ranges::binary_search(given, leaf.view.data);
  if (num_places != given.size() || std::ranges::adjacent_find(given) != given.end())
    throw UserError(name_, "a donated array must be given once", "the same array as several arguments",
                    "hl.asarray(x, copy=True) for one of them");
  a.taken.resize(a.donated.size());
  for (std::size_t i = 0; i < a.donated.size(); ++i) {
    if (types_[a.donated[i]].weak) continue;
    Array& array = *nb::inst_ptr<Array>(a.objects[a.donated[i]]);
    a.taken[i] = std::exchange(array, Array::wrap(array.dtype(), array.shape(), nullptr));
  }
}

void Specialization::hold_arrays(Arguments& a) {
  for (std::size_t i = 0; i < a.leaves.size(); ++i)
    if (nb::isinstance<Array>(a.objects[i])) a.held.push_back(nb::inst_ptr<Array>(a.objects[i])->memory());
}

void Specialization::launch(Arguments& a) const {
  const Executable::Impl& impl = executable_->impl();
  for (const Limit& limit : limits_) (void)number_in(a.objects[limit.leaf], limit.dtype, limit.where);
  a.inputs.clear();
  a.outputs.clear();
  a.results.clear();
  for (const Leaf& leaf : a.leaves) a.inputs.push_back(const_cast<void*>(leaf.view.data));
  if (!is_bound_)
    for (const Array& array : lifted_) a.inputs.push_back(const_cast<void*>(array.raw()));
  const auto taken_by = [&](std::size_t result) { return taken_over_.empty() ? -1 : taken_over_[result]; };
  for (std::size_t r = 0; r < impl.outputs.size(); ++r) {
    const ValueType& type = impl.outputs[r];
    a.results.push_back(Array::wrap(type.dtype, type.shape, taken_by(r) < 0 ? runtime::result_memory(type) : nullptr));
  }
  // Only now: a call without memory for its results takes nothing.
  if (!a.donated.empty()) take_donated(a);
  for (std::size_t r = 0; r < a.results.size(); ++r) {
    Array& result = a.results[r];
    if (const int taken = taken_by(r); taken >= 0)
      result = Array::wrap(result.dtype(), result.shape(), a.taken[static_cast<std::size_t>(taken)].memory());
    a.outputs.push_back(result.raw());
  }
  const auto work = [&] { executable_->run_raw(a.inputs.data(), a.outputs.data(), rows_); };
  if (work_ < work_to_release_gil) {
    run_briefly(work);
  } else {
    hold_arrays(a);
    if (a.donated.empty())
      run_interruptibly(work);
    else
      run_once_interruptibly(work);
    a.held.clear();
  }
  a.taken.clear();
}

nb::object Specialization::run(Arguments& a) const {
  launch(a);
  if (one_result_) return to_python(std::move(a.results[0]));
  std::vector<nb::object> leaves;
  leaves.reserve(a.results.size());
  for (Array& result : a.results) leaves.push_back(to_python(std::move(result)));
  return unflatten(result_structure_, leaves);
}

Profile Specialization::profile(Arguments& a) const {
  std::vector<Array> inputs;
  for (std::size_t i = 0; i < types_.size(); ++i) {
    const std::shared_ptr<void> memory(std::shared_ptr<void>(), const_cast<void*>(a.leaves[i].view.data));
    inputs.push_back(Array::wrap(types_[i].type.dtype, types_[i].type.shape, memory));
  }
  if (!is_bound_) inputs.insert(inputs.end(), lifted_.begin(), lifted_.end());
  hold_arrays(a);
  Profile result;
  run_interruptibly([&] { result = hotloop::profile(*executable_, inputs); });
  a.held.clear();
  return result;
}

std::string types_text(const std::vector<LeafType>& types) {
  std::string text;
  for (const LeafType& t : types) text += (text.empty() ? "" : ", ") + (t.weak ? "number" : t.type.str());
  return text;
}

}  // namespace hotloop::python
