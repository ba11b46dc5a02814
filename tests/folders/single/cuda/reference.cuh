// The reference.
