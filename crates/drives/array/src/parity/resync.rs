//! Resynchronisation of an array with parity that is in use.

use manylogs_block::{Extent, Hint, IoError, PAGE, Request, Sectors, all_done};
use manylogs_plant::{self as plant, Bug};

use super::Parity;
use super::stripe_content::parity_of;
use crate::members::Pace;

impl Parity {
    /// Gives the rows parity that fits while the array is used, as md does after a crash. Writes to
    /// the rows in work wait. Ends when all rows are in step, or when a member is lost: then rows
    /// stay as they are.
    pub async fn resync(&self, pace: Pace) {
        let (chunk, members) = (self.0.geometry.chunk, &self.0.members);
        let end = self.0.capabilities.capacity.0 / u64::from(self.0.geometry.columns);
        while let Some(from) = members.behind() {
            if from.0 >= end {
                return members.resynced(None);
            }
            let in_stripe = chunk.0 - from.0 % chunk.0;
            let len = Sectors(pace.window.0.max(PAGE.0).next_multiple_of(PAGE.0).min(in_stripe));
            let place = Extent { start: from, len };
            let rows = place.start.0 / PAGE.0..place.end().0 / PAGE.0;
            let takes = !plant::is(Bug::ResyncOvertakesWrite);
            if takes {
                self.take(rows.clone()).await;
            }
            let fits = self.fit(place).await;
            if fits == Ok(true) {
                members.resynced(Some(place.end()));
            }
            if takes {
                self.free(rows);
            }
            if fits != Ok(true) {
                return;
            }
            self.0.runtime.sleep(pace.pause).await;
        }
    }

    /// Writes the parity of rows of one stripe anew if it does not fit. False if a member is lost.
    async fn fit(&self, place: Extent) -> Result<bool, IoError> {
        let stripe = self.stripe_of(place);
        let data = self.read_data(place, false);
        let parities = self.read_parities(place, false);
        self.unplug();
        let data: Option<Vec<_>> = self.all(data).await?.into_iter().collect();
        let parities: Option<Vec<_>> = self.all(parities).await?.into_iter().collect();
        let (Some(data), Some(old)) = (data, parities) else { return Ok(false) };
        let mut writes = Vec::new();
        for (which, old) in (0..).zip(&old) {
            let payload = parity_of(which, &data, place.len);
            if !payload.sectors().eq(old.sectors()) {
                let member = self.0.rotation.of_parity(stripe, which);
                let write = Request::Write { extent: place, payload, fua: false, hint: Hint::None };
                writes.push(self.push_write(member, write, false));
            }
        }
        self.unplug();
        all_done(writes).await?;
        Ok(true)
    }
}
