//! Changes of names, and inodes that the kernel has forgotten.

use manylogs_block::IoError;
use manylogs_ext4::{Error, Ext4, Ino};
use manylogs_plant::{Bug, is};

use crate::listings::Listings;
use crate::teller::Teller;

/// Ends `users` uses of an inode, because the kernel has forgotten it that often. A failure leaves
/// an orphan, which the next mount deletes.
pub(crate) async fn forget(fs: &Ext4, listings: &Listings, ino: Ino, users: u32) {
    drop(fs.close(ino, users).await);
    if !fs.is_known(ino) {
        listings.forget(ino);
    }
}

/// A name that changes.
pub(crate) struct ChangedName {
    pub(crate) dir: Ino,
    pub(crate) name: Vec<u8>,
    pub(crate) teller: Teller,
}

impl ChangedName {
    /// Passes the result of the change on. After an error of the device it is unclear whether the
    /// change was made: the kernel then must forget the name.
    pub(crate) fn noted<T>(&self, done: Result<T, Error>) -> Result<T, Error> {
        let done = match done {
            Ok(_) if is(Bug::MlfsCreateFails) && self.name.starts_with(b"fails") => {
                Err(Error::Aborted(IoError::ReadOnly { reason: "a test wants it" }))
            }
            done => done,
        };
        done.inspect_err(|error| {
            if matches!(error, Error::Io(_) | Error::Aborted(_) | Error::Corrupt(_)) {
                self.teller.unknown(self.dir, &self.name);
            }
        })
    }
}
