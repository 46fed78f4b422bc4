"""Campaigns: operations are timed while power is logged, and the measurements become datasets."""
