// What memory is known to hold at the cursor. A small statement that is emitted in place finds in registers what statements
// before it stored or loaded as single numbers. Stores stay: other code may read them.
#pragma once

#include <llvm/IR/DataLayout.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "backends/llvm/code.h"

namespace hotloop::codegen {

class HeldValues {
 public:
  HeldValues(const llvm::Module& module, const kernel::Program& program);

  // The address of a buffer, told before the first statement that uses it. Buffers of an arena overlap where their bytes do, others not
  // at all.
  void lies_at(int buffer, const Value* base);

  // The address of the element of a buffer that these variables lead to: computed once, so that places a constant apart can be compared.
  Value* moving(int buffer, const std::vector<kernel::Term>& terms, const std::function<Value*()>& compute);
  void rebinds(kernel::Var var);  // it has another value from here on

  void clear();
  void forget(int buffer);                        // something was written to it
  void writes(int buffer) { written_ = buffer; }  // what following stores write to

  // The value of such a load, or null.
  Value* find(Code& code, DType dtype, Value* pointer, std::int64_t stride, int lanes, Value* mask);
  void keep_load(DType dtype, Value* pointer, Value* value);  // of one number
  // Null if a store of these lanes at the end of a buffer may write the padding behind it too, else the mask.
  Value* mask_of_store(DType dtype, Value* pointer, int lanes, Value* mask) const;
  void keep_store(DType dtype, Value* pointer, Value* value, Value* mask);
  void forget_store() { forget(written_); }  // one that keep_store() cannot describe

  void keep(int buffer, Value* value);         // all its elements, from the first lane on
  Value* all_of(int buffer, int lanes) const;  // the same, or null

  // What is known, to be known again where control flow that came after it has joined.
  struct Knowledge;
  Knowledge knowledge() const;
  void restore(const Knowledge& known);

 private:
  struct Place {
    const Value* base;
    std::int64_t at;  // bytes
  };
  struct Range {
    Place place;
    std::int64_t bytes;
    bool padded;  // to whole vectors
  };
  struct Entry {
    Place place;
    std::int64_t bytes;  // that are known
    DType dtype;
    Value* value;
  };
  using Moving = std::pair<int, std::vector<std::pair<kernel::Var, std::int64_t>>>;  // buffer and terms

  Value* number_at(Code& code, DType dtype, const Place& place, int lanes) const;  // in all lanes, or null
  Place place_of(const Value* pointer) const;
  bool is_known(const Place& place) const;  // a constant distance from a buffer, or from a place told to moving()
  Range reach(const Place& place, std::int64_t bytes) const;  // where it may lie, from the start of an arena or buffer
  void forget(const Place& place, std::int64_t bytes);

  const llvm::DataLayout& layout_;
  const kernel::Program& program_;
  std::vector<Range> ranges_;                // by buffer
  std::map<const Value*, int> base_values_;  // of these: -1; of places told to moving(): the buffer
  std::map<Moving, Value*> moving_;
  std::vector<Entry> entries_;
  int written_ = -1;
};

struct HeldValues::Knowledge {
  std::vector<Entry> entries;
  std::map<Moving, Value*> moving;
};

}  // namespace hotloop::codegen
