//! The packages linked into the program have allowed licences, and are not too many.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;

use serde_json::Value;

/// A package may be used if its licence names one of these.
const ALLOWED: [&str; 10] = [
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unlicense",
    "Unicode-3.0",
    // Public domain: the package that draws a hash's constants while compiling.
    "CC0-1.0",
];
/// Most packages of other projects, because cold builds take minutes. Parquet added twenty, ublk
/// two, ext4 one, and the Python package eleven, which no other program has.
const PACKAGES_MAX: usize = 129;
/// The limit with ublk, whose library brings an unused executor and generators of bindings.
const PACKAGES_WITH_UBLK_MAX: usize = 188;
/// The limit with TLS, which brings seven.
const PACKAGES_WITH_TLS_MAX: usize = 136;

#[test]
fn dependencies_are_few_and_free() {
    check(&[], PACKAGES_MAX);
    check(&["--features", "manylogs-cli/ublk"], PACKAGES_WITH_UBLK_MAX);
    check(&["--features", "manylogs-cli/tls"], PACKAGES_WITH_TLS_MAX);
}

fn check(features: &[&str], packages_max: usize) {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(features)
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("failed to download") {
        // This call fetches packages of features that are not built here.
        manylogs_testkit::skip(format_args!("the packages cannot be fetched: {said}"));
        return;
    }
    assert!(output.status.success(), "{said}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let others = packages.iter().filter(|package| !package["source"].is_null()).count();
    assert!(others <= packages_max, "{others} packages of others");
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("");
        let free = ALLOWED.iter().any(|allowed| licence.contains(allowed));
        assert!(free, "{} has licence {licence:?}", package["name"]);
    }
}
