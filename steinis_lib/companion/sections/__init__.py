"""The sections of the book, a folder each: experiment, statistics, and the `Section` itself."""
