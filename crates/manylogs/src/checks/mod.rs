//! Looking at a volume, for faults and for people.

#[doc(hidden)]
pub mod fuzz;
pub(crate) mod inspect;
pub(crate) mod scrub;
