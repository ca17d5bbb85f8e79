//! Histories of the file system ext4: clients whose disk loses power at any event, and images that
//! are damaged on purpose. Both need `mkfs.ext4`, and `e2fsck` for a sample.

mod arrays;
mod broken_log;
mod client;
mod durable;
mod history;
mod homes;
mod images;
mod judge;
mod model;
mod mutate;
mod near;
mod plan;
mod raw_log;
mod replacing;
mod trouble;
mod world;

pub use arrays::{OnArray, has_room_on};
pub(crate) use history::run_history;
pub use images::{ImageSource, Images, Templates, has_program, image_dir, load, mkfs, save};
pub use judge::{Said, content, e2fsck, names};
pub(crate) use judge::{crash, is_due, nothing_is_wrong, replayed_by_e2fsck};
pub(crate) use mutate::{damage_anything, is_unseen, run_mutant};
pub use plan::{Ext4Plan, Journal, Shape};
pub use raw_log::{RawBlock, RawKind, RawLog, flipped};
pub(crate) use world::clock;
pub use world::{SMALL_MIB, SMALL_OPTIONS, World, mount, mount_in, options};
