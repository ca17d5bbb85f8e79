//! Deliberate bugs for mutation testing. Each breaks one promise of `docs/semantics.md`, and a test
//! must notice each: else the tests prove nothing. Without the feature `plant`, [`is`] answers
//! "no" at compile time and costs nothing.
//!
//! Tests that run a volume in their own process plant a bug in one thread by `plant`. For a server
//! that a test starts, the environment variable `MANYLOGS_PLANT` plants bugs in the whole process:
//! it holds the name of a bug, or several names with commas between.

macro_rules! bugs {
    ($($(#[$group_doc:meta])* $group:ident { $($(#[$doc:meta])* $bug:ident,)+ })+) => {
        /// A promise to break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Bug {
            $($($(#[$doc])* $bug,)+)+
        }

        $($(#[$group_doc])* pub const $group: &[Bug] = &[$(Bug::$bug,)+];)+
    };
}

#[macro_use]
mod file_systems;
#[macro_use]
mod lenders;
#[macro_use]
mod systems;
#[macro_use]
mod arrays;

mod bugs;

pub use bugs::*;

#[cfg(feature = "plant")]
mod planted;
#[cfg(feature = "plant")]
pub use planted::{is, plant, planted};

/// Whether the bug is planted here.
#[cfg(not(feature = "plant"))]
#[must_use]
pub const fn is(_bug: Bug) -> bool {
    false
}
