//! The library once more, for tests: see the package's manifest.

#[path = "../src/lib.rs"]
mod preload;
