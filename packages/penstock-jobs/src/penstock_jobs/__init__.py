"""Long computations with progress: asked for by a message, answered by messages."""
