"""Tasks: one file a family, each with a list TASKS of harness.task.Task."""
