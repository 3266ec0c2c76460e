"""A million rows: submitting them, keeping them, reading their records."""
