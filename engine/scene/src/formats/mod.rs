//! File formats: each reader checks the sizes a file claims against its length before it allocates.
