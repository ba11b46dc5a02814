"""What people and other programs read: terminal, page, plots, exports. Computes no figure that is not in a report."""
