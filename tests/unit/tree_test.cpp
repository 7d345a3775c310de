#include "hotloop/tree.h"

#include <gtest/gtest.h>

#include "nn_testing.h"

namespace hotloop {
namespace {

Tree<int> sample() {
  Tree<int> tree;
  tree.set("0", {{"weight_ih_l0", 1}, {"bias_ih_l0", 2}});
  tree.set("10", {{"weight", 3}});
  tree.set("1", 4);
  return tree;
}

TEST(Tree, KeepsTheOrderInWhichChildrenCame) {
  EXPECT_EQ(sample().flatten(), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(sample().names(), (std::vector<std::string>{"0.weight_ih_l0", "0.bias_ih_l0", "10.weight", "1"}));
  EXPECT_EQ(sample().num_leaves(), 4u);
}

TEST(Tree, DottedNamesReachDescendants) {
  Tree<int> tree = sample();
  EXPECT_EQ(tree["0.bias_ih_l0"], 2);
  EXPECT_EQ(tree["10.weight"], 3);
  EXPECT_EQ(tree.at("0").at("weight_ih_l0").leaf(), 1);
  tree["10.weight"] = 7;
  EXPECT_EQ(tree.flatten()[2], 7);
  EXPECT_FALSE(tree.has("0.weight"));
}

TEST(Tree, SetReplacesAChildInItsPlace) {
  Tree<int> tree = sample();
  tree.set("10", 9);
  EXPECT_EQ(tree.names(), (std::vector<std::string>{"0.weight_ih_l0", "0.bias_ih_l0", "10", "1"}));
}

TEST(Tree, UnflattenAndMapKeepTheStructure) {
  const Tree<double> doubled = sample().map([](int v) { return 2.0 * v; });
  EXPECT_EQ(doubled.names(), sample().names());
  EXPECT_EQ(doubled["1"], 8.0);
  const Tree<std::string> text = sample().unflatten(std::vector<std::string>{"a", "b", "c", "d"});
  EXPECT_EQ(text["10.weight"], "c");
}

TEST(Tree, MapTreesPairsLeavesByName) {
  const Tree<int> sum = map_trees([](int a, int b, double c) { return a + b + static_cast<int>(c); }, sample(),
                                  sample(), sample().map([](int v) { return 10.0 * v; }));
  EXPECT_EQ(sum.flatten(), (std::vector<int>{12, 24, 36, 48}));
}

TEST(Tree, FromNamesInvertsNamesAndFlatten) {
  std::vector<std::pair<std::string, int>> named;
  sample().for_each([&](const std::string& name, int leaf) { named.emplace_back(name, leaf); });
  const Tree<int> tree = Tree<int>::from_names(named);
  EXPECT_EQ(tree.names(), sample().names());
  EXPECT_EQ(tree.flatten(), sample().flatten());
}

TEST(Tree, ALeafAloneIsATree) {
  const Tree<int> leaf(5);
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_EQ(leaf.flatten(), std::vector<int>{5});
  EXPECT_EQ(leaf.unflatten(std::vector<int>{6}).leaf(), 6);
}

TEST(Tree, ErrorsNameWhatIsThere) {
  EXPECT_EQ(testing::message_of([] { sample().at("0.weight_ih_l1"); }),
            "[tree] a name must be in the tree. Received: '0.weight_ih_l1'. Try: did you mean '0.weight_ih_l0'?");
  EXPECT_EQ(testing::message_of([] { sample().at("0").leaf(); }),
            "[tree] only a leaf has a value. Received: a branch. Try: name one of its leaves.");
  EXPECT_EQ(testing::message_of([] { sample().unflatten(std::vector<int>{1}); }),
            "[tree] unflatten takes one value a leaf, 4. Received: 1.");
  EXPECT_EQ(testing::message_of([] {
              map_trees([](int a, int) { return a; }, Tree<int>{{"a", 1}}, Tree<int>{{"b", 1}});
            }),
            "[tree] trees must have the same leaves in the same order. Received: a and b.");
}

}  // namespace
}  // namespace hotloop
