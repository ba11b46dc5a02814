"""The version of this package, which records carry."""

__version__ = "0.2.0"
