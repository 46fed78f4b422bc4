"""Where entries are pulled from and pushed to: folders, HTTP, S3."""
