"""Converters: they make the tables that importers read from a clone of the public repository of a source."""
