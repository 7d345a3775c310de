// A Python function compiled for arguments of certain types: tracing, compiling, and the call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "array.h"
#include "hotloop/jit.h"
#include "hotloop/profile.h"
#include "trees.h"

namespace hotloop::python {

// One argument leaf of a call, viewed in place.
struct Leaf {
  ArrayView view;
  bool weak = false;
  bool is_wide = false;  // see Tracer
  union {
    double real;
    std::int64_t integer;
    std::uint8_t boolean;
  };
  Array converted;  // what the view looks at, if the argument had to be converted
};

// The arguments of a call, read without allocating in the steady state. Views point into it and into the caller's objects, which it keeps.
struct Arguments : FlatTree {
  std::vector<Leaf> leaves;
  std::vector<void*> inputs, outputs;
  std::vector<Array> results;
  std::vector<std::size_t> donated;         // leaves that the call gives away, ascending
  std::vector<Array> taken;                 // their arrays, while the program runs
  std::vector<std::shared_ptr<void>> held;  // of the other Arrays, while others may donate them

  void clear();
  // Fills `leaves` from `objects`. UserError naming `where` for one that is no array.
  void read_leaves(const std::string& where);
  std::size_t hash() const;
};

// A lease of Arguments from a free list of this thread.
class ArgumentsLease {
 public:
  ArgumentsLease();
  ~ArgumentsLease();
  ArgumentsLease(const ArgumentsLease&) = delete;
  ArgumentsLease& operator=(const ArgumentsLease&) = delete;
  Arguments* operator->() { return arguments_; }
  Arguments& operator*() { return *arguments_; }

 private:
  Arguments* arguments_;
};

struct LeafType {
  ValueType type;
  bool weak = false;
  bool is_wide = false;
  bool fits(const Leaf& leaf) const { return leaf.weak == weak && leaf.is_wide == is_wide && leaf.view.has_type(type); }
};

// A function's first argument, given once: programs are compiled with its arrays bound (see compile_bound).
struct BoundArgument {
  Structure structure;
  std::vector<Array> arrays;
};

class Specialization {
 public:
  // Traces fn(*args, **kwargs), whose structure is that of `arguments` (a tuple and a dict), and compiles it; with `bound`,
  // fn(bound, *args, **kwargs). threads < 0: all cores for work that is worth it, else one. `structure` is that of the arguments to compare with.
  Specialization(nb::handle fn, const std::string& name, const Arguments& arguments, Structure structure,
                 CompileOptions options, const BoundArgument* bound = nullptr);
  // The same program with other arrays of the bound argument.
  Specialization rebound(const BoundArgument& bound) const;

  bool accepts(const Arguments& arguments) const;
  // The result, as fn would return it. Releases the GIL while longer work runs.
  nb::object run(Arguments& arguments) const;
  // Of calls with these arguments, none of which is consumed.
  Profile profile(Arguments& arguments) const;

  const Executable& executable() const { return *executable_; }
  const std::vector<LeafType>& leaf_types() const { return types_; }
  double compile_ms() const { return compile_ms_; }
  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;
  // What is different in the arguments of a call that this does not accept.
  std::string difference(const Arguments& arguments) const;

 private:
  void launch(Arguments& arguments) const;
  // Without the GIL another thread may donate what a call reads.
  static void hold_arrays(Arguments& arguments);
  // Takes the arrays of donated leaves out of the caller's objects, all or none.
  void take_donated(Arguments& arguments) const;

  // A leaf that is a Python number and must fit the dtype which the program takes it in.
  struct Limit {
    std::size_t leaf;
    DType dtype;
    std::string where;
  };

  std::string name_;
  std::vector<LeafType> types_;
  std::vector<Limit> limits_;
  std::vector<int> taken_over_;  // for each result the place among the donated leaves whose memory it gets, or -1
  Structure structure_, result_structure_;
  bool one_result_ = false, is_bound_ = false;
  std::vector<Array> lifted_;  // arrays of the surroundings, after the arguments; bound too if anything is
  std::optional<Executable> executable_;
  std::int64_t rows_ = 1;
  double work_ = 0;  // flops and bytes
  double compile_ms_ = 0;
};

std::string types_text(const std::vector<LeafType>& types);
void bind_specialize(nb::module_& m);

}  // namespace hotloop::python
