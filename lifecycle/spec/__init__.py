"""What use_case.yaml may say, as types. They know nothing of how it is done."""
