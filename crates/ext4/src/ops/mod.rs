//! What programs ask for.

mod attributes;
mod mount;
mod names;

pub use attributes::{Attributes, Change, Usage};
pub use mount::{Ext4, Options};
pub use names::New;
