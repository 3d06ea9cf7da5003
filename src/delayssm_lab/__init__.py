"""The laboratory: tasks, data, baselines, training, reports and the command line. It needs the lab extra."""
