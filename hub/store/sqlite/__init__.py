"""The embedded engine: one file of SQLite, through apsw."""
