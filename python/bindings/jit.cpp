// JitFunction: a Python function that is compiled at the first call with arguments of new types. A type of its own with a
// vectorcall, so that a call makes no tuple and finds its executable without running Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <structmember.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>

#include "backends/cuda/device.h"
#include "components.h"
#include "gil.h"
#include "hotloop/error.h"
#include "interrupt.h"
#include "schedule/kernel_ir.h"
#include "specialize.h"
#include "tracer.h"

namespace hotloop::python {
namespace {

struct JitState {
  PyObject* fn = nullptr;  // owned
  std::string name;
  CompileOptions options;
  // Positional arguments from `first_static` on are static, and those flagged; of keywords the named ones, or with `keywords_static` all but these.
  std::size_t first_static = SIZE_MAX;
  std::vector<std::size_t> static_positions;
  std::vector<nb::object> static_names;
  std::vector<std::size_t> donated_positions;
  std::vector<nb::object> donated_names;
  bool keywords_static = false;
  std::optional<BoundArgument> bound;
  std::unordered_multimap<std::size_t, std::unique_ptr<Specialization>> specializations;
  const Specialization* last = nullptr;

  bool is_static(std::size_t position) const {
    return position >= first_static || std::ranges::find(static_positions, position) != static_positions.end();
  }
  bool is_static(PyObject* keyword) const { return keywords_static != names(static_names, keyword); }
  bool is_donated(std::size_t position) const {
    return !donated_positions.empty() && std::ranges::find(donated_positions, position) != donated_positions.end();
  }
  bool is_donated(PyObject* keyword) const { return names(donated_names, keyword); }

 private:
  static bool names(const std::vector<nb::object>& list, PyObject* keyword) {
    for (const nb::object& name : list)
      if (PyUnicode_Compare(name.ptr(), keyword) == 0) return true;
    return false;
  }
};

struct JitObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weakrefs;
  JitState* state;
};

PyObject* g_type = nullptr;
nb::object& log_hook() {
  static nb::object& hook = *new nb::object;
  return hook;
}

JitState& live_state(PyObject* self) {
  JitState& state = *reinterpret_cast<JitObject*>(self)->state;
  // Objects that only each other know are asked for their end one after the other.
  if (state.fn == nullptr)
    throw UserError(state.name, "a compiled function may be called while it lives",
                    "a call by an object that is collected together with it");
  return state;
}

JitState& state_of(nb::handle self) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(self.ptr())) != g_type) throw nb::type_error("a compiled function is wanted");
  return live_state(self.ptr());
}

void append_argument(Arguments& a, PyObject* value, bool is_static, bool is_donated) {
  if (is_static) {
    a.add(Token::Kind::Static, 0, value);
    return;
  }
  const std::size_t begin = a.objects.size();
  a.add_tree(value);
  for (std::size_t i = begin; is_donated && i < a.objects.size(); ++i) a.donated.push_back(i);
}

void read_arguments(const JitState& state, Arguments& a, PyObject* const* args, std::size_t nargs, PyObject* kwnames) {
  a.add(Token::Kind::Tuple, 2);
  a.add(Token::Kind::Tuple, nargs);
  for (std::size_t i = 0; i < nargs; ++i) append_argument(a, args[i], state.is_static(i), state.is_donated(i));
  const Py_ssize_t num_keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  a.add(Token::Kind::Dict, static_cast<std::size_t>(num_keywords));
  for (Py_ssize_t i = 0; i < num_keywords; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    a.add(Token::Kind::Key, 0, name);
    append_argument(a, args[nargs + static_cast<std::size_t>(i)], state.is_static(name), state.is_donated(name));
  }
  a.read_leaves(state.name);
}

// Comparing static values may run Python and let other threads in, which add programs: iterators do not outlive that, programs do.
const Specialization* known(JitState& state, const Arguments& a, std::size_t hash) {
  std::vector<const Specialization*> candidates;
  const auto [begin, end] = state.specializations.equal_range(hash);
  for (auto it = begin; it != end; ++it) candidates.push_back(it->second.get());
  for (const Specialization* program : candidates)
    if (program->accepts(a)) return state.last = program;
  return nullptr;
}

const Specialization& specialize(JitState& state, const Arguments& a, std::size_t hash) {
  if (const Specialization* program = known(state, a, hash)) return *program;
  const std::string reason = state.last == nullptr ? "first call" : state.last->difference(a);
  auto made = std::make_unique<Specialization>(state.fn, state.name, a, Structure::with_frozen_values(a.tokens),
                                               state.options, state.bound ? &*state.bound : nullptr);
  // Another thread may have been faster.
  if (const Specialization* program = known(state, a, hash)) return *program;
  const Specialization& added = *state.specializations.emplace(hash, std::move(made))->second;
  state.last = &added;
  // The hook is Python: while it runs, another thread's call may become the last.
  if (log_hook().is_valid()) log_hook()(state.name, types_text(added.leaf_types()), reason, added.compile_ms());
  return added;
}

const Specialization& find(JitState& state, const Arguments& a) {
  if (const Specialization* last = state.last; last != nullptr && last->accepts(a)) return *last;
  return specialize(state, a, a.hash());
}

// Runs f, which gives a new reference, and turns C++ exceptions into Python's.
template <class F> PyObject* guarded(F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    set_python_error();
  }
  return nullptr;
}

// Inside another trace: the function itself.
PyObject* call_traced(const JitState& state, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
  if (!state.bound) return PyObject_Vectorcall(state.fn, args, nargsf, kwnames);
  std::vector<nb::object> arrays;
  for (const Array& array : state.bound->arrays) arrays.push_back(to_python(array));
  const nb::object first = unflatten(state.bound->structure, arrays);
  const auto nargs = static_cast<std::size_t>(PyVectorcall_NARGS(nargsf));
  std::vector<PyObject*> all = {first.ptr()};
  all.insert(all.end(), args, args + nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames)));
  return PyObject_Vectorcall(state.fn, all.data(), nargs + 1, kwnames);
}

PyObject* jit_call(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* kwnames) {
  return guarded([&] {
    JitState& state = live_state(self);
    if (is_tracing()) return call_traced(state, args, nargsf, kwnames);
    ArgumentsLease a;
    read_arguments(state, *a, args, static_cast<std::size_t>(PyVectorcall_NARGS(nargsf)), kwnames);
    return find(state, *a).run(*a).release().ptr();
  });
}

int jit_traverse(PyObject* self, visitproc visit, void* arg) {
  auto* object = reinterpret_cast<JitObject*>(self);
  Py_VISIT(object->dict);
  Py_VISIT(Py_TYPE(self));
  if (object->state == nullptr) return 0;
  const JitState& state = *object->state;
  Py_VISIT(state.fn);
  int status = state.bound ? state.bound->structure.traverse(visit, arg) : 0;
  for (const auto& [hash, program] : state.specializations)
    if (status == 0) status = program->traverse(visit, arg);
  return status;
}

int jit_clear(PyObject* self) {
  auto* object = reinterpret_cast<JitObject*>(self);
  Py_CLEAR(object->dict);
  if (object->state == nullptr) return 0;
  JitState& state = *object->state;
  Py_CLEAR(state.fn);
  // What they let go of may run Python, which may ask for this function.
  state.last = nullptr;
  const auto programs = std::exchange(state.specializations, {});
  const auto bound = std::exchange(state.bound, std::nullopt);
  return 0;
}

void jit_dealloc(PyObject* self) {
  auto* object = reinterpret_cast<JitObject*>(self);
  PyObject_GC_UnTrack(self);
  if (object->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  Py_CLEAR(object->dict);
  if (object->state != nullptr) {
    Py_CLEAR(object->state->fn);
    delete object->state;
  }
  PyTypeObject* type = Py_TYPE(self);
  free_object(type, self);
  Py_DECREF(type);
}

// As a method of a class.
PyObject* jit_get(PyObject* self, PyObject* instance, PyObject*) {
  return instance == nullptr || instance == Py_None ? Py_NewRef(self) : bound_method(self, instance);
}

PyObject* jit_repr(PyObject* self) {
  return PyUnicode_FromFormat("<compiled function %s>", reinterpret_cast<JitObject*>(self)->state->name.c_str());
}

PyMemberDef jit_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(JitObject, vectorcall), READONLY, nullptr},
                             {"__dictoffset__", T_PYSSIZET, offsetof(JitObject, dict), READONLY, nullptr},
                             {"__weaklistoffset__", T_PYSSIZET, offsetof(JitObject, weakrefs), READONLY, nullptr},
                             {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef jit_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot jit_slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                           {Py_tp_traverse, reinterpret_cast<void*>(jit_traverse)},
                           {Py_tp_clear, reinterpret_cast<void*>(jit_clear)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(jit_dealloc)},
                           {Py_tp_descr_get, reinterpret_cast<void*>(jit_get)},
                           {Py_tp_repr, reinterpret_cast<void*>(jit_repr)},
                           {Py_tp_members, jit_members},
                           {Py_tp_getset, jit_getset},
                           {0, nullptr}};
PyType_Spec jit_spec = {
    "hotloop.CompiledFunction", sizeof(JitObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    jit_slots};

nb::object new_jit(nb::handle fn, const std::string& name, const CompileOptions& options) {
  auto* object = PyObject_GC_New(JitObject, reinterpret_cast<PyTypeObject*>(g_type));
  if (object == nullptr) throw nb::python_error();
  object->vectorcall = jit_call;
  object->dict = nullptr;
  object->weakrefs = nullptr;
  object->state = new JitState;
  JitState& state = *object->state;
  state.fn = Py_NewRef(fn.ptr());
  state.name = name;
  state.options = options;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(object));
  return nb::steal(reinterpret_cast<PyObject*>(object));
}

nb::object make_jit(nb::callable fn, const std::string& name, std::vector<std::size_t> static_positions,
                    std::vector<nb::object> static_names, nb::object num_arrays, const CompileOptions& options,
                    std::vector<std::size_t> donated_positions, std::vector<nb::object> donated_names) {
  nb::object made = new_jit(fn, name, options);
  JitState& state = state_of(made);
  state.static_positions = std::move(static_positions);
  state.static_names = std::move(static_names);
  state.donated_positions = std::move(donated_positions);
  state.donated_names = std::move(donated_names);
  if (!num_arrays.is_none()) {
    state.first_static = nb::cast<std::size_t>(num_arrays);
    state.keywords_static = true;
  }
  return made;
}

// fn(first, ...) as a compiled function of the rest, with the arrays of `first` bound.
nb::object make_bound_jit(nb::callable fn, const std::string& name, nb::handle first, const CompileOptions& options) {
  const auto [leaves, structure] = flatten(first);
  BoundArgument bound{structure, {}};
  for (const nb::object& leaf : leaves) bound.arrays.push_back(snapshot(to_array(leaf, name)));
  nb::object made = new_jit(fn, name, options);
  state_of(made).bound = std::move(bound);
  return made;
}

// The same function and programs with another first argument, of the same structure and types.
nb::object rebound_jit(nb::handle self, nb::handle first) {
  JitState& state = state_of(self);
  if (!state.bound) throw UserError(state.name, "the function must have a bound argument", "one without");
  BoundArgument bound{state.bound->structure.clone(), {}};
  for (const nb::object& leaf : flatten_like(bound.structure, first, state.name))
    bound.arrays.push_back(snapshot(to_array(leaf, state.name)));
  const auto paths = leaf_paths(bound.structure);
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (bound.arrays[i].type() != state.bound->arrays[i].type())
      throw UserError(state.name, paths[i] + " must be " + state.bound->arrays[i].type().str() + " as before",
                      bound.arrays[i].type().str());
  nb::object made = new_jit(state.fn, state.name, state.options);
  JitState& other = state_of(made);
  std::vector<std::pair<std::size_t, const Specialization*>> programs;  // to which another thread may add meanwhile
  for (const auto& [hash, program] : state.specializations) programs.emplace_back(hash, program.get());
  for (const auto& [hash, program] : programs)
    other.specializations.emplace(hash, std::make_unique<Specialization>(program->rebound(bound)));
  other.bound = std::move(bound);
  return made;
}

// The option of that name: its values are strings.
std::string option_of(nb::handle value, const char* name) {
  if (!nb::isinstance<nb::str>(value))
    throw UserError("jit", std::string(name) + " must be a string", nb::cast<std::string>(nb::repr(value)));
  return nb::cast<std::string>(value);
}

bool flag_of(nb::handle value, const char* name) {
  if (!nb::isinstance<nb::bool_>(value))
    throw UserError("jit", std::string(name) + " must be True or False", nb::cast<std::string>(nb::repr(value)));
  return nb::cast<bool>(value);
}

CompileOptions options_of(nb::object device, nb::object threads, nb::object backend, nb::object target,
                          const std::vector<std::string>& disabled_passes, nb::object keep_source, nb::object dispatch,
                          nb::object dot_precision, nb::object flush_denormals) {
  CompileOptions options;
  options.device = option_of(device, "device");
  const std::int64_t given = threads.is_none() ? -1 : integer_of(threads, "jit", "threads");
  if (!threads.is_none() && (given < 0 || given > std::numeric_limits<int>::max()))
    throw UserError("jit", "threads must be None, 0, or a number of cores", std::to_string(given), "0 for all cores");
  options.threads = static_cast<int>(given);
  options.backend = option_of(backend, "backend");
  options.target = option_of(target, "target");
  options.disabled_passes = disabled_passes;
  options.keep_source = flag_of(keep_source, "keep_source");
  options.dispatch = option_of(dispatch, "dispatch");
  const std::string precision = option_of(dot_precision, "dot_precision");
  if (precision != "float32" && precision != "bfloat16")
    throw UserError("jit", "dot_precision must be 'float32' or 'bfloat16'", "'" + precision + "'");
  options.dot_precision = precision == "bfloat16" ? "bf16" : "f32";
  if (!flush_denormals.is_none()) options.flush_denormals = flag_of(flush_denormals, "flush_denormals");
  return options;
}

// None where programs cannot run on one.
nb::object cuda_device() {
  const cuda::Device* device = nullptr;
  {
    const GilReleased released;  // the driver takes its time to start
    device = cuda::find_device();
  }
  if (device == nullptr) return nb::none();
  const cuda::DeviceInfo& info = device->info();
  nb::dict found;
  found["name"] = info.name;
  found["kind"] = "cuda";
  found["capability"] = nb::make_tuple(info.capability / 10, info.capability % 10);
  found["multiprocessors"] = info.multiprocessors;
  found["memory_bytes"] = info.memory_bytes;
  found["versions"] = info.versions;
  return found;
}

// The arguments of fn(*args, **kwargs), alive as long as both are.
void read_call(const JitState& state, Arguments& a, nb::args args, nb::kwargs kwargs, std::vector<PyObject*>& values,
               nb::object& names) {
  for (const nb::handle v : args) values.push_back(v.ptr());
  nb::list keys;
  for (const auto& [key, value] : kwargs) {
    keys.append(key);
    values.push_back(value.ptr());
  }
  names = nb::tuple(keys);
  read_arguments(state, a, values.data(), nb::len(args), names.ptr());
}

// use(program, arguments) for the call fn(*args, **kwargs).
template <class Use> auto for_call(nb::handle fn, nb::args args, nb::kwargs kwargs, Use&& use) {
  JitState& state = state_of(fn);
  ArgumentsLease a;
  std::vector<PyObject*> values;
  nb::object names;
  read_call(state, *a, args, kwargs, values, names);
  return use(find(state, *a), *a);
}

// Leaves that are no arrays become static, and so do Python integers and bools: the program is traced for this call alone, and the
// function may use them as numbers of Python.
void read_open_call(const JitState& state, Arguments& a, nb::args args, nb::kwargs kwargs) {
  a.add(Token::Kind::Tuple, 2);
  a.add_tree(args.ptr());
  a.add_tree(kwargs.ptr());
  std::size_t next = 0, num_arrays = 0;
  for (Token& token : a.tokens) {
    if (token.kind != Token::Kind::Leaf) continue;
    PyObject* object = a.objects[next++];
    const Number number = number_kind(object);
    if (number != Number::Int && number != Number::Bool && is_array_like(object))
      std::swap(a.objects[num_arrays++], a.objects[next - 1]);
    else
      token = {Token::Kind::Static, 0, Py_NewRef(object)};
  }
  for (; a.objects.size() > num_arrays; a.objects.pop_back()) Py_DECREF(a.objects.back());
  a.read_leaves(state.name);
}

// Traced anew at each call, since what the function sees around it may have changed; the executable comes from the engine's
// cache if the program is the same.
nb::object run_once(nb::callable fn, const std::string& name, nb::args args, nb::kwargs kwargs) {
  JitState state;
  state.name = name;
  ArgumentsLease a;
  read_open_call(state, *a, args, kwargs);
  CompileOptions options;
  options.threads = -1;
  return Specialization(fn, name, *a, Structure(a->tokens), options).run(*a);
}

}  // namespace

void bind_jit(nb::module_& m) {
  remember_main_thread();
  g_type = PyType_FromSpec(&jit_spec);
  if (g_type == nullptr) throw nb::python_error();
  m.attr("CompiledFunction") = nb::handle(g_type);
  nb::class_<CompileOptions>(m, "CompileOptions");
  m.def("options", &options_of, nb::arg("device").none() = "auto", nb::arg("threads") = nb::none(),
        nb::arg("backend").none() = "llvm", nb::arg("target").none() = "host",
        nb::arg("disabled_passes") = std::vector<std::string>{}, nb::arg("keep_source").none() = false,
        nb::arg("dispatch").none() = "fused", nb::arg("dot_precision").none() = "float32",
        nb::arg("flush_denormals").none() = nb::none());
  m.def("jit", &make_jit, nb::arg("fn"), nb::arg("name"), nb::arg("static_positions"), nb::arg("static_names"),
        nb::arg("num_arrays").none(), nb::arg("options"), nb::arg("donated_positions") = std::vector<std::size_t>{},
        nb::arg("donated_names") = std::vector<nb::object>{});
  m.def("bound_jit", &make_bound_jit, nb::arg("fn"), nb::arg("name"), nb::arg("first"), nb::arg("options"));
  m.def("rebound_jit", &rebound_jit, nb::arg("fn"), nb::arg("first"));
  nb::class_<Executable>(m, "Executable", "One compiled program.")
      .def("explain", &Executable::explain)
      .def("graph_text", &Executable::graph_text)
      .def("kernel_text", &Executable::kernel_text)
      .def("source", &Executable::source);
  m.def("executable_for", [](nb::handle fn, nb::args args, nb::kwargs kwargs) {
    return for_call(fn, args, kwargs, [](const Specialization& program, Arguments&) { return program.executable(); });
  });
  nb::class_<StatementTime>(m, "StatementTime", "A statement of a kernel, and what its runs in one call take.")
      .def_ro("statement", &StatementTime::statement)
      .def_ro("time_us", &StatementTime::time_us)
      .def_ro("runs", &StatementTime::runs)
      .def_ro("flops", &StatementTime::flops)
      .def_ro("elements", &StatementTime::elements);
  nb::class_<Profile>(m, "Profile", "Where the time of a call goes: see hotloop.profile.")
      .def_ro("program", &Profile::program)
      .def_ro("statements", &Profile::statements)
      .def_ro("num_calls", &Profile::num_calls)
      .def_ro("call_us", &Profile::call_us)
      .def_ro("without_clocks_us", &Profile::without_clocks_us)
      .def_ro("met_denormals", &Profile::met_denormals)
      .def("__str__", &Profile::str)
      .def("__repr__", &Profile::str);
  m.def("profile_of", [](nb::handle fn, nb::args args, nb::kwargs kwargs) {
    return for_call(fn, args, kwargs, [](const Specialization& program, Arguments& a) { return program.profile(a); });
  });
  m.def("num_specializations", [](nb::handle fn) { return state_of(fn).specializations.size(); });
  m.def("run_once", &run_once);
  m.def("host_target", [] { return std::string(kernel::host_target().name); });
  m.def("cuda_device", &cuda_device);
  m.def(
      "set_log_hook", [](nb::object hook) { log_hook() = hook.is_none() ? nb::object() : hook; },
      nb::arg("hook").none());
}

}  // namespace hotloop::python
