"""What dumps of PyTorch's flight recorder hold, and the rows that are made of them."""
