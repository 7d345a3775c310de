// What is written by hand, one file each.
#pragma once

#include "protocol.h"

hotloop::bench::Prepared recurrent_train(const hotloop::bench::Sizes& sizes, const hotloop::bench::Arrays& inputs,
                                         int threads);
hotloop::bench::Prepared stream_native(const hotloop::bench::Sizes& sizes, const hotloop::bench::Arrays& inputs,
                                       int threads);
