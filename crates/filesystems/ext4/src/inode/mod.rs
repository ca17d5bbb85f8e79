//! Inodes: the state in memory of those in use, their creation and deletion, and orphans.

mod birth;
mod end;
mod known;
mod losses;
mod node;
mod nodes;
mod orphans;

pub(crate) use birth::{BIRTH_CREDITS, Newborn};
pub(crate) use end::Ends;
pub(crate) use known::Known;
pub use losses::Descriptor;
pub(crate) use losses::Losses;
pub(crate) use node::{Node, PAGE_COST, Page};
pub(crate) use nodes::{Nodes, nodes_most};
pub(crate) use orphans::ORPHAN_CREDITS;
