"""The version of twinalign; bundles record it."""

__version__ = "0.1.0"
