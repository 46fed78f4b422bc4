"""Campaigns that time operations while power is logged, and turn the measurements into datasets."""
