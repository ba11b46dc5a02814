"""What people and other programs read: terminal, page, plots, exports. Shows figures that reports and boards store, and
what judging and evaluation compute of them; computes no further one beside medians and means of what it shows.
"""
