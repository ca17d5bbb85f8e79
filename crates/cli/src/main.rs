//! The `manylogs` command.

fn main() {}
