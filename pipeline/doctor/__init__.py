"""What `trainworthy doctor` looks at: one file a subject, each check a function from Settings to CheckResults."""
