//! What is done with a trace before it is replayed: each is a source over sources.

pub mod window;
