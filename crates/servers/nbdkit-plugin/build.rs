//! How the plugin is linked.

fn main() {
    // nbdkit unloads the plugin before it ends. Threads that wait for operators still run then, so
    // that their code must stay loaded.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rustc-link-arg-examples=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
