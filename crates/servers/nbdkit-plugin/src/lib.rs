//! A volume as a plugin of nbdkit: `nbdkit libmanylogs_nbdkit.so device=PATH`.
//!
//! nbdkit speaks NBD; each request arrives on a thread of its own, which hands it to the one
//! engine of the process and waits. Parameters: `config.rs`; start and end: `service.rs`.

mod config;
mod connection;
mod ffi;
mod service;

pub use ffi::plugin_init;
