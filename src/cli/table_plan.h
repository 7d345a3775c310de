// What a table's columns are good for, by what its first rows tell: which one orders the rows, which are inputs, and why others are not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/table_profile.h"

namespace hotloop::cli {

enum class Role { Target, Time, Group, Sample, Input, LeftOut };
struct Use {
  const ColumnProfile* column = nullptr;
  Role role = Role::LeftOut;
  std::string note = {};
};

inline bool is_number(const ColumnProfile& c) { return c.kind == data::ColumnKind::Number; }
inline bool is_text(const ColumnProfile& c) { return c.kind == data::ColumnKind::Text; }

// From row to row of a series, by a column of times that rises in each.
struct TimeSteps {
  double commonest = 0;
  bool vary = false;  // so much that gaps, which other steps count as, leave few windows
};

struct PlanOptions {
  std::string target = {}, task = {}, group = {};  // task: "" by the target's cells; group: "" for one series
  std::string sample = {};                         // column whose rows of one value are one series with one target
  bool in_order = false;                           // rows follow one another at equal steps, with or without times
};

// A table, and what each of its columns is used for.
struct TablePlan {
  TableProfile table;
  std::vector<Use> uses = {};      // by column
  TimeSteps steps = {};            // of time()
  std::int64_t window_length = 1;  // rows that a window of a table with times has

  const ColumnProfile& target() const { return *find(Role::Target); }
  const ColumnProfile* time() const { return find(Role::Time); }
  const ColumnProfile* group() const { return find(Role::Group); }
  const ColumnProfile* sample() const { return find(Role::Sample); }

 private:
  const ColumnProfile* find(Role role) const {
    const auto use = std::ranges::find(uses, role, &Use::role);
    return use == uses.end() ? nullptr : use->column;
  }
};

// UserError for a target that cannot be one, or for groups or samples that are none.
TablePlan make_plan(const PlanOptions& options, TableProfile profile);

}  // namespace hotloop::cli
