//! Modelled disk drives: physics first.
//!
//! A drive is built in layers. Each can be used alone, and none knows of a clock or a task:
//!
//! * [`profile`]: what a drive is, as data (TOML); every number names its source;
//! * [`geometry`]: where a sector is: cylinder, head and angle;
//! * [`drive`]: command queue, read-ahead and write cache on top, with [`queue`];
//! * [`shingled`]: between them and the mechanism, the translation layer of a shingled drive;
//! * [`host`]: the host in front of the drive, with its block layer and elevator;
//! * [`link`]: the link between the two, which decides what the block layer may do;
//! * [`validate`]: the model against measured requests;
//! * [`seek`] and [`mechanics`]: how long the head takes to get to a sector and to pass over it.
//!
//! On a clock, virtual or real, [`device`] is a drive without content and [`emulated`] one with
//! content, whose [`lateness`] says whether it kept the drive's times.
//!
//! `docs/drive-model.md` describes the modelled effects, their accuracy and the limits.

mod cache;
pub mod command;
mod controller;
pub mod device;
pub mod drive;
pub mod emulated;
pub mod geometry;
pub mod host;
pub mod lateness;
pub mod link;
pub mod mechanics;
pub mod pace;
#[cfg(test)]
mod planted;
pub mod profile;
pub mod queue;
pub mod seek;
pub mod shingled;
pub mod spindle;
pub mod validate;

pub use command::{Command, CommandKind, Completion, Counters, Event};
pub use controller::{Controller, ControllerMemory};
pub use drive::{Drive, Options, QueueFull};
pub use emulated::{ContentTooLarge, EmulatedDrive};
pub use geometry::{Geometry, Location};
pub use host::{BlockLayer, Dispatched, Elevator, ElevatorOptions, Host, Issued, Sweep};
pub use lateness::{LatenessFigures, LatenessReport};
pub use link::{Link, LinkKind, LinkSettings};
pub use mechanics::{Access, Mechanism, RandomTerms};
pub use pace::Pace;
pub use profile::Profile;
pub use queue::Policy as QueuePolicy;
pub use shingled::{CachePlacement, ShingledFigures};
