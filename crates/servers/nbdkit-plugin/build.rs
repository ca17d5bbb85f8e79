//! How the plugin is linked.

fn main() {
    // nbdkit unloads the plugin before it ends, and threads that wait for operators are still
    // there: their code must be too.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rustc-link-arg-examples=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
