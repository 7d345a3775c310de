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
    program.vars.emplace_back("i");
    map_.dims.push_back({static_cast<Var>(program.vars.size()) - 1, {points, -1}});
    map_.num_outer = over == Over::Points ? 1 : 0;
    map_.vector_dim = 0;
  }

  // Goes on after the instructions of a Map over points, and reduces over these.
  explicit MapWriter(Map map) : map_(std::move(map)) {
    map_.num_outer = 0;
    map_.body_end = 0;
  }

  Affine point() const { return Affine::of(map_.dims[0].var); }
  int constant(DType dtype, std::uint64_t bits) {
    Instr in;
    in.kind = Instr::Kind::Const;
    in.dtype = dtype;
    in.bits = bits;
    return push(in);
  }
  int index(const Affine& index, DType dtype) {
    Instr in;
    in.kind = Instr::Kind::Index;
    in.dtype = dtype;
    in.access.index = index;
    return push(in);
  }
  int load(int buffer, const Affine& index, DType dtype) {
    Instr in;
    in.kind = Instr::Kind::Load;
    in.dtype = dtype;
    in.access = {buffer, index, {}};
    return push(in);
  }
  int op(ScalarOp op, DType dtype, int a, int b = -1, int c = -1) {
    Instr in;
    in.op = op;
    in.dtype = dtype;
    in.args[0] = a;
    in.args[1] = b;
    in.args[2] = c;
    return push(in);
  }
  void store(int buffer, const Affine& index, DType dtype, int value) {
    Instr in;
    in.kind = Instr::Kind::Store;
    in.dtype = dtype;
    in.args[0] = value;
    in.access = {buffer, index, {}};
    push(in);
  }
  // The first one ends the body: what follows may use its result and that of others alone.
  int reduced(ScalarOp op, DType dtype, int value) {
    Instr in;
    in.kind = Instr::Kind::Reduced;
    in.op = op;
    in.dtype = dtype;
    in.args[0] = value;
    if (map_.body_end == 0) map_.body_end = static_cast<int>(map_.instrs.size());
    return push(in);
  }
  Map finish() {
    if (map_.num_outer == static_cast<int>(map_.dims.size())) map_.body_end = static_cast<int>(map_.instrs.size());
    return std::move(map_);
  }

 private:
  int push(const Instr& in) {
    map_.instrs.push_back(in);
    return static_cast<int>(map_.instrs.size()) - 1;
  }
  Map map_;
};

}  // namespace hotloop::kernel
