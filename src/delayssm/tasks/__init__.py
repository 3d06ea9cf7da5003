"""What models are trained on: each task makes its samples and says how an answer is scored."""
