"""The door: a PyTorch model in, a graph out. The only place that reads torch.fx."""
