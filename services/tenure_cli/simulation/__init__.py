"""What `tenure simulate` and `tenure whatif` are made of, beside the simulator itself."""
