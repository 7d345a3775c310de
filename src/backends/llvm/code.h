// LLVM IR on logical vectors: what the emitters of Map, Dot and Pack have in common.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schedule/kernel_ir.h"

namespace hotloop::codegen {

using kernel::lanes_of;
using llvm::Value;

class Clocks;

// One module under construction. Outlined functions are found again by a key that says all about their code.
struct ModuleState {
  llvm::Module& module;
  const kernel::Program& program;
  int register_bytes;      // of a hardware vector: 64, 32 or 16
  bool multiplies_pairs;   // of bfloat16, in one instruction
  bool multiplies_blocks;  // of such pairs, with AMX
  std::map<std::string, llvm::Function*> outlined;
  std::map<int, llvm::Constant*> constants;  // data of constant buffers
  Clocks* clocks = nullptr;                  // of the kernel's statements, if it has any

  llvm::LLVMContext& context() const { return module.getContext(); }
  const kernel::Buffer& buffer(int index) const { return program.buffers[static_cast<std::size_t>(index)]; }
  // Without AVX-512 a masked store takes a dozen cycles on some processors. What no other worker writes is then written again as it is, a branch for all
  // lanes pays sooner.
  bool masks_freely() const { return register_bytes == 64; }
  bool loads_masked() const { return register_bytes > 16; }  // in one instruction, by a mask known at run time
  int num_registers() const { return register_bytes == 64 || program.target.name == "neon" ? 32 : 16; }
  bool blends_stores(int buffer_index) const {
    return !masks_freely() && buffer(buffer_index).space == kernel::Space::Worker;
  }
  // A function with the attributes of the target (no fast-math; denormals as the program has them).
  llvm::Function* create_function(const std::string& name, llvm::FunctionType* type, bool is_entry);
};

class HeldValues;

// A cursor in one function. A value is a vector of `lanes` elements, or a scalar when it has one lane; Bool is i1 in
// registers and a byte in memory.
class Code {
 public:
  Code(ModuleState& state, llvm::BasicBlock* block) : b(block), state_(state) {}
  llvm::IRBuilder<> b;
  // Set while a statement is emitted in place: loops of known length are unrolled, loads and stores pass by what is held.
  HeldValues* held = nullptr;
  // A tail of so many pieces is moved piece by piece, of powers of two lanes, else through a mask.
  int most_pieces = 2;

  ModuleState& state() { return state_; }
  llvm::LLVMContext& context() { return state_.context(); }
  Value* i64(std::int64_t value) { return b.getInt64(static_cast<std::uint64_t>(value)); }
  llvm::Type* scalar_type(DType dtype);
  llvm::Type* type(DType dtype, int lanes);
  Value* constant(DType dtype, std::uint64_t bits);
  Value* zero(DType dtype, int lanes) { return llvm::Constant::getNullValue(type(dtype, lanes)); }
  Value* widen(Value* value, int lanes);  // broadcasts a scalar
  Value* lane_numbers(llvm::Type* element, int lanes, std::int64_t stride);
  // Lanes 0..active-1, of all if there are more. `most`: active is never greater.
  Value* tail_mask(int lanes, Value* active, std::int64_t most = std::numeric_limits<std::int64_t>::max());
  Value* offset(Value* pointer, std::int64_t bytes);
  Value* offset(Value* pointer, Value* index, std::int64_t scale_bytes);

  // for iv = begin; iv < end; iv += step, with values carried from one iteration to the next. The body returns the
  // new ones. A loop known to run once is not a loop; one known not to run is nothing.
  using Values = std::vector<Value*>;
  Values loop(Value* begin, Value* end, std::int64_t step, Values carried,
              const std::function<Values(Value* iv, const Values& carried)>& body);
  void loop(Value* begin, Value* end, std::int64_t step, const std::function<void(Value* iv)>& body);
  void when(Value* condition, const std::function<void()>& body);
  // What one of the two returns: as many values of the same types.
  Values either(Value* condition, const std::function<Values()>& then, const std::function<Values()>& otherwise);
  // What the body returns, else `otherwise`. A condition that is rarely true: its code stands apart.
  Value* when_rarely(Value* condition, Value* otherwise, const std::function<Value*()>& body);
  // Room on the stack for so many of a type, made once where the function begins.
  llvm::AllocaInst* stack_room(llvm::Type* type, std::int64_t count);
  llvm::AllocaInst* stack_row(DType dtype, std::int64_t count);  // of numbers side by side, as whole logical vectors
  Value* is_cancelled(Value* flag);                              // i1: whether the flag at this address was raised

  // `stride` elements from lane to lane; lanes outside `mask` (null: none) are not touched and read as 0.
  Value* load(DType dtype, Value* pointer, std::int64_t stride, int lanes, Value* mask);
  void store(DType dtype, Value* value, Value* pointer, std::int64_t stride, int lanes, Value* mask);
  // The pointer, or where no lane is read, one that is mapped: a masked load of a page that is not takes a processor hundreds of cycles.
  Value* near_if_off(Value* pointer, Value* mask);
  // The lanes of n vectors in turn, the first lane of each, then the second ones: n vectors.
  Values woven(Values parts);
  Values unwoven(Values parts);  // the inverse
  // `count` vectors of elements side by side, `stride` elements from lane to lane: vector i has in each lane the i-th element there. The first
  // `rows` lanes are read, the others are 0. Where only the first `there` of them may be read, one or more, the others are what the last of these is.
  Values load_transposed(DType dtype, Value* pointer, Value* stride, int rows, int count, Value* there = nullptr);
  // The same to memory, vectors `apart` elements from one to the next, by a function that all squares of a program share.
  void copy_transposed(DType dtype, Value* source, std::int64_t stride, int rows, int count, Value* target,
                       std::int64_t apart);
  Value* gather(DType dtype, Value* pointer, Value* indices, Value* mask);
  void scatter(DType dtype, Value* value, Value* pointer, Value* indices, Value* mask);

  Value* fma(Value* a, Value* c, Value* addend);  // a * c + addend; two roundings on targets without fma
  // Of vectors some lanes of which were left out, and are 0 in both. LLVM 19 takes 0 / 0 for 0 in such lanes, and drops what would make it 0; of this
  // intrinsic it believes nothing.
  Value* quotient_of_some_lanes(Value* a, Value* c);
  // One half of pairs of bfloat16, u32, as f32.
  Value* upper_halves(Value* pairs);
  Value* lower_halves(Value* pairs);
  // The step of a Dot of pairs: a and c of u32, the addend of f32.
  Value* fma_pairs(Value* a, Value* c, Value* addend);
  // The two words of each block of a random stream, as lanes of 64 bits below 2^32; the same is the number of the block. `keys`: random_keys().
  struct Words {
    Value *even, *odd;
  };
  Words random_words(Value* block, const Values& keys);
  // What the rounds take of a key of two words (u32).
  Values random_keys(Value* key0, Value* key1, int lanes);
  Value* low_word(Value* v) { return b.CreateAnd(v, splat(v, 0xffffffff)); }
  // One scalar operation; `operand` is the dtype of the last argument (they differ for Cast, compares and Select).
  Value* op(ir::ScalarOp op, DType result, DType operand, const Values& args);
  Value* identity(ir::ScalarOp op, DType dtype);
  Value* combine_halves(ir::ScalarOp op, DType dtype, Value* vector);  // lane l with lane l + L/2, down to a scalar
  // The same of several vectors at once: their results are the first lanes of one vector as long.
  Value* combine_halves(ir::ScalarOp op, DType dtype, Values vectors);

  // Addresses (i64) of a vector's lanes, at `places` elements from the pointer; of those that the mask leaves out `instead`. Null `mask`: of all.
  Value* lane_addresses(DType dtype, Value* pointer, Value* places, Value* mask, Value* instead);

 private:
  bool moves_lane_by_lane(const Value* mask) const;
  Value* lane_pointer(Value* addresses, int lane);
  Value* nowhere();  // where lanes move that a mask leaves out
  Value* lanes_from(Value* vector, int first, int count);
  Value* joined(Value* low, Value* high);  // of as many lanes
  bool is_short_tail(DType dtype, int count, int lanes) const;
  Value* load_tail(DType dtype, Value* pointer, int count, int lanes);
  void store_tail(DType dtype, Value* value, Value* pointer, int count);
  bool has_idle_register(DType dtype, const Value* mask) const;
  llvm::GlobalVariable* zeros();
  Value* masked_load(DType dtype, Value* pointer, Value* mask);  // as in memory: Bool is i8
  void masked_store(DType dtype, Value* value, Value* pointer, Value* mask);
  Value* half_of_mask(Value* mask, int first);
  Value* gather_by_vectors(DType dtype, Value* pointer, Value* indices, Value* mask);  // null where it takes too many
  Value* memory_value(DType dtype, Value* value);                                      // i1 to i8
  Value* register_value(DType dtype, Value* value);                                    // i8 to i1
  llvm::Type* memory_type(DType dtype, int lanes);
  Value* float_op(ir::ScalarOp op, DType dtype, const Values& args);
  Value* integer_op(ir::ScalarOp op, DType dtype, const Values& args);
  Value* bool_op(ir::ScalarOp op, const Values& args);
  Value* compare(ir::ScalarOp op, DType operand, Value* a, Value* c);
  Value* saturated(DType to, Value* value, llvm::Type* target);
  Value* cast(DType to, DType from, Value* value);
  Value* far_angle(bool wants_turns, DType dtype, Value* x, Value* near);
  Value* far_rem(DType dtype, Value* x, Value* y, Value* near);
  Value* ldexp(DType dtype, Value* x, Value* n);
  Value* divide(ir::ScalarOp op, DType dtype, Value* a, Value* c);
  Value* splat(Value* like, std::int64_t value);  // an integer constant of the type of `like`

  ModuleState& state_;
  Value* nowhere_ = nullptr;
};

inline int lanes_in(const Value* value) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector == nullptr ? 1 : static_cast<int>(vector->getNumElements());
}
// How many lanes a mask lets through, if they are the first ones and known.
std::optional<int> known_lanes(const Value* mask, int lanes);
inline std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

// Whether load_transposed() takes less than `count` gathers would, of lanes `stride` elements apart, `step` elements from one to the next.
bool pays_to_transpose(DType dtype, std::int64_t stride, std::int64_t step, std::int64_t count);

// Where a function of the program stands: what variables and buffers are there.
struct Frame {
  std::vector<Value*> vars;           // by Var, i64; null outside its scope
  std::function<Value*(int)> buffer;  // base address of a buffer
  Value* worker = nullptr;
  Value* num_workers = nullptr;
  Value* turn = nullptr;    // odd in every second call, or iteration of the innermost loop
  int loop_depth = 0;       // loops of the program around it
  Value* cancel = nullptr;  // address of the flag that long work polls
  HeldValues* held = nullptr;

  Value* extent(Code& code, const kernel::Extent& extent) const;
  Value* affine(Code& code, const kernel::Affine& index) const;    // in elements
  Value* address(Code& code, const kernel::Access& access) const;  // no indirect terms
  Value* address(Code& code, int buffer, const kernel::Affine& index) const;
};

// Each emits a call of an outlined function at the cursor, or a small statement of known extents in place where `held` is given.
void emit_map(Code& code, const Frame& frame, const kernel::Map& map, bool may_split, HeldValues* held = nullptr);
void emit_dot(Code& code, const Frame& frame, const kernel::Dot& dot, HeldValues* held = nullptr);
// Both, if the Map can follow block by block of the Dot's columns, and gains by it; else nothing, and false.
bool emit_dot_and_map(Code& code, const Frame& frame, const kernel::Dot& dot, const kernel::Map& map, HeldValues* held);
// The statements with Maps of several sums cut where one of these can run beside a product in front of the Map or behind it; empty if there is none.
kernel::Block with_sums_apart(const ModuleState& state, std::span<const kernel::Stmt> statements);
// Both, if the Map sums over all steps of the Dot what that reads of one factor; else nothing, and false.
bool emit_dot_and_sum(Code& code, const Frame& frame, const kernel::Dot& dot, const kernel::Map& map, HeldValues* held);
void emit_pack(Code& code, const Frame& frame, const kernel::Pack& pack, bool may_split);
// The whole program: an exported function `hotloop_kernel` of type KernelFunction.
void emit_program(ModuleState& state);

}  // namespace hotloop::codegen
