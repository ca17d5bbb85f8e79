//! The operations that programs ask for.

mod access;
mod arrange;
mod attributes;
mod content;
mod counters;
mod damage;
mod descriptors;
mod durability;
mod flags;
mod log_file;
mod mount;
mod names;
mod privileges;
mod rename;
mod repair;
mod told;
mod unmount;
mod unnamed;
mod usage;
mod xattr;

pub use access::{AccessTimes, OpenFor};
pub use arrange::Arranged;
pub use attributes::{Attributes, Change, NewTime};
pub(crate) use damage::Found;
pub use durability::{Caller, Durability};
pub use log_file::{LOG_FILE_NAME, LogFile, Wanted};
pub use mount::{Ext4, Options};
pub use names::New;
pub use privileges::{Credentials, SetIds};
pub use rename::Taken;
pub use repair::JournalRepaired;
pub use told::Changed;
pub(crate) use told::Listener;
pub use usage::Usage;
pub use xattr::SetXattr;
