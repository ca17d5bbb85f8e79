//! A second build of the library, for tests: see the package's manifest.

#[path = "../src/lib.rs"]
mod preload;
