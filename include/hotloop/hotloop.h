// Everything.
#pragma once

#include "hotloop/array.h"
#include "hotloop/data.h"
#include "hotloop/error.h"
#include "hotloop/fit.h"
#include "hotloop/graph.h"
#include "hotloop/init.h"
#include "hotloop/io.h"
#include "hotloop/jit.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/ops.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "hotloop/transforms.h"
#include "hotloop/tree.h"
