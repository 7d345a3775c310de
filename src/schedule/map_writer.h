// Writes one Map of straight-line code over the points of a single dim.
#pragma once

#include <string>
#include <utility>

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

class MapWriter {
 public:
  enum class Over { Points, Reduction, Once };

  MapWriter(Program& program, const std::string& name, std::int64_t points, Over over = Over::Points) {
    map_.name = name;
    if (over == Over::Once) return;
    map_.dims.push_back({program.new_var("i"), {points, -1}});
    map_.num_outer = over == Over::Points ? 1 : 0;
    map_.vector_dim = 0;
  }

  // Goes on after the instructions of a Map over points, and reduces over these.
  explicit MapWriter(Map map) : map_(std::move(map)) {
    map_.num_outer = 0;
    map_.body_end = 0;
  }

  Affine point() const { return Affine::of(map_.dims[0].var); }
  int constant(DType dtype, std::uint64_t bits) { return push(const_instr(dtype, bits)); }
  int index(const Affine& index, DType dtype) { return push(index_instr(dtype, index)); }
  int load(int buffer, const Affine& index, DType dtype) { return push(load_instr(dtype, {buffer, index, {}})); }
  int op(ScalarOp op, DType dtype, int a, int b = -1, int c = -1) { return push(op_instr(op, dtype, a, b, c)); }
  void store(int buffer, const Affine& index, DType dtype, int value) { store({buffer, index, {}}, dtype, value, -1); }
  void store(Access access, DType dtype, int value, int predicate) {
    push(store_instr(dtype, std::move(access), value, predicate));
  }
  // The first one ends the body: what follows may use its result and that of others alone.
  int reduced(ScalarOp op, DType dtype, int value) {
    if (map_.body_end == 0) map_.body_end = static_cast<int>(map_.instrs.size());
    return push(reduced_instr(op, dtype, value));
  }
  Map finish() {
    if (map_.num_outer == static_cast<int>(map_.dims.size())) map_.body_end = static_cast<int>(map_.instrs.size());
    return std::move(map_);
  }

 private:
  int push(Instr in) {
    map_.instrs.push_back(std::move(in));
    return static_cast<int>(map_.instrs.size()) - 1;
  }
  Map map_;
};

}  // namespace hotloop::kernel
