"""Places that entries are pulled from and pushed to: folders, zip files, HTTP and S3."""
