"""Local language models: files, a process for the weights, batched answers."""
