//! Episodes of a mail server's peak (the Everest paper, tables 1 and 2), generated, in virtual
//! time: what clients of the busiest volume wait for alone, and with stores on two others.
//!
//! The paper's traces cannot be shipped. Here the requests of an episode come from its table 1, and
//! the length of its two bursts is fitted so that a plain drive takes table 2's mean: see
//! [`fitted`]. Each volume is one drive, with a quarter of the requests that the paper's arrays of
//! four have.

pub(crate) mod devices;
mod figures;
mod gates;
mod generate;
mod policy;
mod table;
mod world;

pub use figures::{EpisodeFigures, HeldAt};
pub use gates::{EpisodeGate, EpisodeResult, gates};
pub use generate::{Episode, Offered, fitted};
pub use policy::{Counts, OffloadPolicy, OursOptions};
pub use table::text;
pub use world::{EpisodeFailure, On, run, run_over_time};
