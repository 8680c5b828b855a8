"""Programs: binding, running, looking at what happened."""
