"""A small LLaMA decoding: ms a step beside torch, and a hundred steps against float64."""
