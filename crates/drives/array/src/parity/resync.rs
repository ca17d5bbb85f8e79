//! Resynchronisation of an array with parity that is in use.

use manylogs_block::{Extent, Hint, IoError, PAGE, Payload, Request, Sectors, all_done};
use manylogs_plant::{self as plant, Bug};

use super::Parity;
use super::stripe_content::{completed, parity_of};
use crate::members::Pace;

impl Parity {
    /// Gives the rows parity that fits while the array is used, as md does after a crash, and gives
    /// new members their content of them ([`Members::with_new`]). Writes to the rows in work wait.
    /// Ends when all rows are in step, or when a member is lost: then rows stay as they are.
    ///
    /// [`Members::with_new`]: crate::Members::with_new
    pub async fn resync(&self, pace: Pace) {
        let (chunk, members) = (self.0.geometry.chunk, &self.0.members);
        let end = self.0.capabilities.capacity.0 / u64::from(self.0.geometry.columns);
        while let Some(from) = members.behind() {
            if from.0 >= end {
                // A power cut must not take what a member holds that counts as filled.
                let new = (0..).zip(members.unfilled()).filter(|(_, new)| *new);
                let flushed = new.map(|(member, _)| self.push(member, Request::Flush, false));
                let flushed: Vec<_> = flushed.collect();
                self.unplug();
                if all_done(flushed).await.is_ok() {
                    members.resynced(None);
                }
                return;
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

    /// Writes the parity of rows of one stripe anew if it does not fit, and all that a new member
    /// holds of them. False if a member was lost meanwhile, or is and there is no new one.
    async fn fit(&self, place: Extent) -> Result<bool, IoError> {
        let (stripe, lost) = (self.stripe_of(place), self.0.members.lost());
        let data = self.read_data(place, false);
        let parities = self.read_parities(place, false);
        self.unplug();
        let (data, parities) = (self.all(data).await?, self.all(parities).await?);
        let unfilled = self.0.members.unfilled();
        // Beside a member that is missing for longer, a new one is filled by the second parity.
        let is_changed = self.0.members.lost() != lost;
        if is_changed || lost.contains(&true) && !unfilled.contains(&true) {
            return Ok(false);
        }
        let rotation = self.0.rotation;
        let new: Vec<u16> = (0..self.0.geometry.columns)
            .filter(|column| unfilled[usize::from(rotation.of_data(stripe, *column))])
            .collect();
        let Some(data) = completed(data, &parities, place.len) else { return Ok(false) };
        let mut writes = Vec::new();
        let mut push = |member: u16, payload: Payload| {
            let write = Request::Write { extent: place, payload, fua: false, hint: Hint::None };
            if self.0.members.takes_writes(member.into()) {
                writes.push(self.push_write(member, write, false));
            }
        };
        for column in new {
            push(rotation.of_data(stripe, column), data[usize::from(column)].clone());
        }
        for (which, old) in (0..).zip(&parities) {
            let payload = parity_of(which, &data, place.len);
            if old.as_ref().is_none_or(|old| !payload.sectors().eq(old.sectors())) {
                push(rotation.of_parity(stripe, which), payload);
            }
        }
        self.unplug();
        all_done(writes).await?;
        Ok(true)
    }
}
