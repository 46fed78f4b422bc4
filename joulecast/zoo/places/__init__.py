"""Places that entries are pulled from and pushed to: folders, HTTP and S3."""
