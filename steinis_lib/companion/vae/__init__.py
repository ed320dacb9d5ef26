"""Variational autoencoders of MNIST images, the models of section 5.4, and their training."""
