// Options that several commands share: what replaces a configuration's values.
#pragma once

#include <memory>

#include "cli/command.h"
#include "cli/job.h"

namespace hotloop::cli {

// Options for everything in a job that may differ from its file.
void add_overrides(CLI::App& command, const std::shared_ptr<JobSource>& source);
// What runs a model.
void add_machine_overrides(CLI::App& command, const std::shared_ptr<JobSource>& source);
// Those that leave a trained model what it is: where its data are, and what runs it.
void add_run_overrides(CLI::App& command, const std::shared_ptr<JobSource>& source);
// The positional CONFIG, for which the folder of a run may stand, and all overrides.
std::shared_ptr<JobSource> add_job_options(CLI::App& command);

}  // namespace hotloop::cli
