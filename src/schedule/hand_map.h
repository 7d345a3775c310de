// HandMap: a Map statement written by hand, dim by dim and instruction by instruction.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "schedule/context.h"
#include "schedule/map_builder.h"

namespace hotloop {

class HandMap {
 public:
  HandMap(LoweringContext& context, std::string name) : context_(context) { map_.name = std::move(name); }

  // A dim, and the index along it; an extent of 1 is no dim.
  kernel::Affine dim(const kernel::Extent& extent) {
    if (extent.is_static() && extent.bound == 1) return 0;
    map_.dims.push_back({context_.new_var("i"), extent});
    return kernel::Affine::of(map_.dims.back().var);
  }
  // Those of all axes of v.
  std::vector<kernel::Affine> dims(Value v) {
    std::vector<kernel::Affine> index;
    for (int i = 0; i < v.rank(); ++i) index.push_back(dim(context_.extent(v, i)));
    return index;
  }
  // Each appends an instruction, and returns its register.
  int constant(DType dtype, double value) { return push(kernel::const_instr(dtype, bits_of(dtype, value))); }
  int index(const kernel::Affine& at, DType dtype) { return push(kernel::index_instr(dtype, at)); }
  int op(ir::ScalarOp scalar, DType dtype, int a, int b = -1, int c = -1) {
    return push(kernel::op_instr(scalar, dtype, a, b, c));
  }
  int reduced(ir::ScalarOp scalar, DType dtype, int reg) { return push(kernel::reduced_instr(scalar, dtype, reg)); }
  int load(const Storage& s, DType dtype, const std::vector<kernel::Affine>& index,
           std::vector<kernel::Indirect> by = {}, int predicate = -1) {
    return push(kernel::load_instr(dtype, access(s, index, std::move(by)), predicate));
  }
  void store(const Storage& s, DType dtype, const std::vector<kernel::Affine>& index, int value,
             std::vector<kernel::Indirect> by = {}, int predicate = -1) {
    push(kernel::store_instr(dtype, access(s, index, std::move(by)), value, predicate));
  }
  // Dims from here on are reduced ones. Returns how many are not.
  int mark_outer() { return map_.num_outer = static_cast<int>(map_.dims.size()); }
  // What comes now are the Reduced, and what is done with them. Without a call of this all dims are outer ones, and nothing is reduced.
  void end_body() { map_.body_end = static_cast<int>(map_.instrs.size()); }
  kernel::Stmt finish(int vector_dim) {
    if (map_.body_end == 0) {
      end_body();
      mark_outer();
    }
    map_.vector_dim = vector_dim;
    return {std::move(map_)};
  }
  int num_dims() const { return static_cast<int>(map_.dims.size()); }

 private:
  static kernel::Access access(const Storage& s, const std::vector<kernel::Affine>& index,
                               std::vector<kernel::Indirect> by) {
    kernel::Access a{s.buffer, s.offset, std::move(by)};
    for (std::size_t i = 0; i < index.size(); ++i) a.index = a.index + index[i] * s.strides[i];
    return a;
  }
  int push(kernel::Instr i) {
    map_.instrs.push_back(std::move(i));
    return static_cast<int>(map_.instrs.size()) - 1;
  }

  LoweringContext& context_;
  kernel::Map map_;
};

}  // namespace hotloop
