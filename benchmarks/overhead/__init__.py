"""What a task costs: six graphs, against runtimes that are given or infer the same edges."""
