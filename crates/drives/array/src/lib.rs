//! Arrays of drives.
//!
//! A volume on an array stands on [`Columns`]: the same array, with each log on one column, and a
//! way for requests to reach the columns one by one. [`Stripe`], [`Mirror`] and [`Parity`] are
//! models of Linux' RAID-0, 1, 10, 5 and 6, on which volumes are measured and crashed. In
//! production the array is Linux' own: this crate stores no data in a format of its own.

mod capabilities;
mod columns;
mod join;
mod map;
mod members;
mod mirror;
mod own_writes;
mod parity;
mod plug;
mod said;
mod shape;
mod stripe;

pub use columns::Columns;
pub use map::ColumnMap;
pub use members::{Members, Pace};
pub use mirror::Mirror;
pub use own_writes::{OwnWrites, SelfWriting};
pub use parity::{Parity, Rotation, completed, parity_of};
pub use said::Said;
pub use shape::{Level, Shape, ShapeError, Unknown, assemble};
pub use stripe::Stripe;
