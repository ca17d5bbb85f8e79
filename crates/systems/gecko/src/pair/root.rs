//! Roots on a pair of which a half sleeps.
//!
//! The root is written now and then while the tail is elsewhere, and would wake the halves of the
//! first two links each time. So it goes to the half alone that is awake. There it is written to
//! the other link's place first, which no root uses, and then to its own: a crash leaves one of
//! the two whole. The root is on two links, so two drives hold the newest one, whichever is lost.
//! An opening takes the newest root of both halves and both places.

use manylogs_block::{IoResult, Request};
use manylogs_logstore::ondisk::equal_logs::ROOTS;

use super::{Pair, Shared};
use crate::keeper::Drive;
use crate::sleep::WakeCause;

impl Pair {
    /// Carries out the change, if it is of the root and a half sleeps, on the other half alone.
    /// `None` if it is another change, or that half failed: then both halves must have it.
    pub(super) async fn write_root(&self, request: &Request) -> Option<IoResult> {
        let awake = self.0.alone_awake(request)?;
        let number = self.0.begin(request.extent().unwrap_or_default());
        let written = self.0.write_both_places(request, &awake).await;
        if written.is_err() {
            for drive in self.0.keeper.current(self.0.link) {
                if let Some(sleeper) = &drive.sleeper {
                    sleeper.wake(WakeCause::Twin).await;
                }
            }
        }
        self.0.end(number);
        written.ok().map(Ok)
    }
}

impl Shared {
    /// The half that is awake, if the request writes a root and the other half sleeps.
    pub(super) fn alone_awake(&self, request: &Request) -> Option<Drive> {
        let Request::Write { extent, .. } = request else { return None };
        let joins = self.keeper.joining().is_some();
        if joins || self.apart.get() || !ROOTS.contains(extent) {
            return None;
        }
        let current = self.keeper.current(self.link);
        current.iter().find(|drive| drive.is_asleep())?;
        current.into_iter().find(|drive| !drive.is_asleep())
    }

    async fn write_both_places(&self, request: &Request, awake: &Drive) -> IoResult {
        let Request::Write { extent, payload, fua, hint } = request.clone() else {
            return awake.device.submit(request.clone()).await;
        };
        if let Some(other) = ROOTS.into_iter().find(|place| *place != extent) {
            let write = Request::Write { extent: other, payload, fua, hint };
            awake.device.submit(write).await?;
        }
        awake.device.submit(request.clone()).await
    }
}
