"""What the host pays: plan size, compile time, generation rate, cost of a call."""
