"""Importers that turn published measurements into datasets: one file per source."""
