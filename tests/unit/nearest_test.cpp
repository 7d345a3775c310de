#include "core/nearest.h"

#include <gtest/gtest.h>

namespace hotloop {
namespace {

TEST(Nearest, SwappedNeighboursAreOneMistake) {
  EXPECT_EQ(edit_distance("ltsm", "lstm"), 1);
  EXPECT_EQ(edit_distance("rsme", "rmse"), 1);
  EXPECT_EQ(edit_distance("ca", "abc"), 3);  // what was swapped stays as it is
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, Hints) {
  EXPECT_EQ(nearest_hint("ltsm", {"last", "lstm"}), "did you mean 'lstm'?");
  EXPECT_EQ(nearest_hint("rsme", {"mse", "rmse"}), "did you mean 'rmse'?");
  EXPECT_EQ(nearest_hint("training", {"data", "train"}), "did you mean 'train'?");
  EXPECT_EQ(nearest_hint("optim", {"data", "optimizer"}), "did you mean 'optimizer'?");
  EXPECT_EQ(nearest_hint("LSTM", {"last", "lstm"}), "did you mean 'lstm'?");
  EXPECT_EQ(nearest_hint("LayerNorm", {"batch_norm", "layer_norm", "linear"}), "did you mean 'layer_norm'?");
  EXPECT_EQ(nearest_hint("Sales", {"Sale", "SALES"}), "did you mean 'SALES'?");
  EXPECT_EQ(nearest_hint("something", {"data", "train"}), "one of data, train");
}

}  // namespace
}  // namespace hotloop
