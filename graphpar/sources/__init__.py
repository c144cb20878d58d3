"""From what stands for a model on the command line to something that can be captured, and to words for what cannot."""
