"""Measurements that others published become datasets: one file per source."""
