//! Listings of directories.

use manylogs_ext4::AccessTimes;
use manylogs_fuse::request::Read;
use manylogs_fuse::{Context, Names, Reply};
use rustix::fs::OFlags;

use super::Front;
use crate::answers::Listing;
use crate::convert::{has, to_ino};

impl Front {
    /// Lists names from an offset on; with `plus` each comes with its inode's attributes.
    pub(super) fn list(&self, context: Context, read: Read, plus: bool, reply: Reply<Names>) {
        let unnoticed = has(read.flags, OFlags::NOATIME);
        let listing = Listing {
            dir: to_ino(context.node),
            offset: read.offset,
            room: read.size,
            reader: context.pid,
            plus: plus.then_some(self.jobs.caches),
            hidden: self.hidden,
            times: if unnoticed { AccessTimes::Off } else { self.directories },
        };
        let (listings, teller) = (self.listings.clone(), self.teller.clone());
        let kept = self.jobs.caches.lists.then_some((listings, teller));
        let asked = plus.then(|| self.jobs.asking.of_any(context.pid));
        self.jobs.run_with(read.size.into(), async move |fs, refuse| {
            listing.answer(&fs, refuse, kept, reply).await;
            drop(asked);
        });
    }
}
