"""What reproduces, measures and trains: the paper, the zoo of architectures, the benches, the studies."""
