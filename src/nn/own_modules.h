// Which modules of a model are a user's own, of which nothing is known but what they give.
#pragma once

#include <memory>
#include <vector>

#include "hotloop/nn.h"

namespace hotloop::nn {

// What a module has beside it whose steps are known to be those of a sequence, or are looked at elsewhere.
class KnownSteps {
 public:
  virtual ~KnownSteps() = default;
};
// A module of the library's.
class BuiltInModule : public Module, public KnownSteps {};

// While it is there, the calls of this thread of modules of one's own are taken down; of one inside another, the outer one's alone.
class OwnModules {
 public:
  struct Call {
    std::shared_ptr<const Module> module;
    Tree<ValueType> inputs;
  };

  OwnModules();
  ~OwnModules();
  OwnModules(const OwnModules&) = delete;
  OwnModules& operator=(const OwnModules&) = delete;

  const std::vector<Call>& calls() const { return calls_; }

 private:
  friend class OwnCall;
  std::vector<Call> calls_;
  OwnModules* outer_;
};

// One call of a module, which Layer::apply() makes.
class OwnCall {
 public:
  OwnCall(const std::shared_ptr<const Module>& module, const Tree<Value>& inputs);
  ~OwnCall();
  OwnCall(const OwnCall&) = delete;
  OwnCall& operator=(const OwnCall&) = delete;

 private:
  OwnModules* noted_ = nullptr;  // where the call was taken down, which takes down none inside it
};

}  // namespace hotloop::nn
