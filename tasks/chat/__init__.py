"""Chat with a configuration's model: streamed, logged, rated."""
