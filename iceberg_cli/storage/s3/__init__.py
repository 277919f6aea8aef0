"""Amazon S3 and services of its protocol."""
