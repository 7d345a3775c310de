// Parameters as one vector, which is what methods work on.
#pragma once

#include <string>

#include "hotloop/graph.h"
#include "hotloop/tree.h"

namespace hotloop::minimizers {

class Flat {
 public:
  // UserError naming `where` unless there are leaves and all are floats.
  Flat(const std::string& where, const Tree<Value>& params);
  std::int64_t size() const { return size_; }
  DType dtype() const { return dtype_; }  // the widest of the leaves'

  Value pack(const Tree<Value>& params) const;
  Value pack(std::span<const Value> leaves) const;
  Tree<Value> unpack(Value flat) const;

 private:
  Tree<ValueType> like_;
  std::int64_t size_ = 0;
  DType dtype_ = DType::F32;
};

}  // namespace hotloop::minimizers
