//! A second build of the plugin, for tests: see the package's manifest.

pub use manylogs_nbdkit::plugin_init;
