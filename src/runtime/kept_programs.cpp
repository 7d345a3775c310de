#include "runtime/kept_programs.h"

#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backends/backend.h"

namespace hotloop::runtime {
namespace {

// Both go through fields() in one order: one appends to `bytes`, the other takes from their front.
struct Writer {
  std::string bytes;

  template <class T>
  requires std::is_arithmetic_v<T>
  void operator()(const T& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void operator()(const std::string& text) {
    (*this)(text.size());
    bytes += text;
  }
  template <class T> void operator()(const std::vector<T>& list) {
    (*this)(list.size());
    for (const T& item : list) (*this)(item);
  }
};

struct Reader {
  std::string_view bytes;
  bool fits = true;  // false once more was asked for than there is; everything is empty then

  template <class T>
  requires std::is_arithmetic_v<T>
  void operator()(T& value) {
    fits = fits && bytes.size() >= sizeof value;
    if (!fits) {
      value = {};
      return;
    }
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes.remove_prefix(sizeof value);
  }
  void operator()(std::string& text) {
    const std::size_t size = size_of_list();
    text = bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
  template <class T> void operator()(std::vector<T>& list) {
    list.resize(size_of_list());
    for (T& item : list) (*this)(item);
  }

 private:
  std::size_t size_of_list() {  // an item has a byte or more
    std::size_t size = 0;
    (*this)(size);
    fits = fits && size <= bytes.size();
    return fits ? size : 0;
  }
};

template <class Program, class Visitor> void fields(Program& program, Visitor& visit) {
  visit(program.code);
  auto& facts = program.facts;
  visit(facts.name);
  visit(facts.num_nodes);
  visit(facts.output_batch_axes);
  visit(facts.in_place);
  visit(facts.pass_lines);
  visit(facts.arithmetic.flops);
  visit(facts.arithmetic.is_bound);
  auto& plan = program.plan;
  visit(plan.max_rows);
  visit(plan.shared_bytes);
  visit(plan.worker_bytes);
  visit(plan.flushes_denormals);
  visit(plan.fixed_rows);
  for (auto& workers : plan.workers_by_width) visit(workers);
  visit(plan.alone_ns);
  visit(plan.call_ns);
  visit(plan.workers);
  visit(plan.slots);
  auto& structure = plan.structure;
  visit(structure.name);
  visit(structure.num_dots);
  visit(structure.num_maps);
  visit(structure.num_loops);
  visit(structure.num_grids);
  visit(structure.num_sections);
  visit(structure.shared_bytes);
  visit(structure.scratch_bytes);
}

}  // namespace

std::string kept_key(const std::string& of_graph, const kernel::Target& target) {
  Writer key{"program\n"};
  key(llvm_origin(target));
  key(target.l1_bytes_there);
  key(target.l2_bytes_there);
  key(target.l1_rate_there);
  key(target.l3_is_near_there);
  key.bytes += of_graph;
  return std::move(key.bytes);
}

std::optional<KeptProgram> find_kept(const codegen::ObjectCache& cache, const std::string& key) {
  const std::optional<std::string> entry = cache.find(key);
  if (!entry) return std::nullopt;
  KeptProgram program;
  Reader reader{*entry};
  fields(program, reader);
  if (!reader.fits || !reader.bytes.empty()) return std::nullopt;
  return program;
}

void keep(const codegen::ObjectCache& cache, const std::string& key, const KeptProgram& program) {
  Writer writer;
  fields(program, writer);
  cache.insert(key, writer.bytes);  // an unwritable directory costs time, nothing else
}

}  // namespace hotloop::runtime
