"""The mathematics of delay systems: tensors in, tensors out, no modules."""
