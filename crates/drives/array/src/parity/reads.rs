//! Reads, and what a missing member would answer.

use manylogs_block::{
    Chunk, Completion, Extent, IoError, Lba, PAGE, Payload, Request, Sectors, Split, completion,
};
use manylogs_plant::{self as plant, Bug};

use super::Parity;
use super::stripe_content::completed;
use crate::join::join;

/// A read from a member; none if it was lost before.
pub(super) type MemberRead = Option<(u16, Completion)>;

impl Parity {
    /// Reads from the members. Each gets what follows on it as one request.
    pub(super) fn read(&self, extent: Extent, urgent: bool) -> Completion {
        let rotation = self.0.rotation;
        let on_member = |chunk: Chunk| {
            let stripe = chunk.at.0 / self.0.geometry.chunk.0;
            Chunk { column: rotation.of_data(stripe, chunk.column), ..chunk }
        };
        let split = Split::of(self.0.geometry.chunks(extent).map(on_member));
        let parts = split.shares.iter().map(|share| match self.holds(share.column, share.extent) {
            true => self.read_live(share.column, share.extent, urgent),
            false => self.reconstructed(share.column, share.extent, urgent),
        });
        let parts = parts.collect();
        self.arm();
        join(Some(split), parts)
    }

    /// Reads from a member, or computes what it holds if it is lost meanwhile.
    fn read_live(&self, member: u16, extent: Extent, urgent: bool) -> Completion {
        let answer = self.push(member, Request::Read { extent }, urgent);
        let array = self.clone();
        Completion::of_others(async move {
            match answer.await {
                Err(error) if array.goes_on_without(member, &error) => {
                    if plant::is(Bug::LostReadTakenAsZeroes) {
                        return Ok(Payload::zeroes(extent.len));
                    }
                    array.reconstructed(member, extent, urgent).await
                }
                other => other,
            }
        })
    }

    /// The content of a missing member, computed from the others stripe by stripe.
    fn reconstructed(&self, member: u16, extent: Extent, urgent: bool) -> Completion {
        let (completer, answer) = completion();
        let array = self.clone();
        self.0.runtime.spawn(async move {
            let (mut left, mut content) = (extent, Payload::default());
            let result = loop {
                if left.is_empty() {
                    break Ok(content);
                }
                let chunk = array.0.geometry.chunk.0;
                let len = left.len.min(Sectors(chunk - left.start.0 % chunk));
                match array.reconstruct_in_stripe(member, Extent { len, ..left }, urgent).await {
                    Ok(part) => content.append(part),
                    Err(error) => break Err(error),
                }
                left = Extent::between(left.start + len, left.end());
            };
            completer.complete(result);
        });
        answer
    }

    async fn reconstruct_in_stripe(
        &self,
        member: u16,
        extent: Extent,
        urgent: bool,
    ) -> Result<Payload, IoError> {
        let rows = extent.start.0 / PAGE.0..extent.end().0.div_ceil(PAGE.0);
        self.take(rows.clone()).await;
        let whole = Extent::between(Lba(rows.start * PAGE.0), Lba(rows.end * PAGE.0));
        let found = self.stripe_content(whole, urgent).await;
        self.free(rows);
        let stripe = self.stripe_of(extent);
        let mut columns = 0..self.0.geometry.columns;
        let column = columns.find(|column| self.0.rotation.of_data(stripe, *column) == member);
        let data = found?;
        let content = column.and_then(|column| data.into_iter().nth(usize::from(column)));
        let content = content.ok_or(IoError::Medium { extent })?;
        Ok(content.slice(Sectors(extent.start.0 - whole.start.0), extent.len))
    }

    /// All data of rows of one stripe.
    async fn stripe_content(&self, place: Extent, urgent: bool) -> Result<Vec<Payload>, IoError> {
        let data = self.read_data(place, urgent);
        let parities = self.read_parities(place, urgent);
        self.unplug();
        let (data, parities) = (self.all(data).await, self.all(parities).await);
        let lost = || IoError::Medium { extent: place };
        completed(data?, &parities?, place.len).ok_or_else(lost)
    }

    /// Sends reads of a place to the members with data that are not lost, by column.
    pub(super) fn read_data(&self, place: Extent, urgent: bool) -> Vec<MemberRead> {
        let stripe = self.stripe_of(place);
        let member = |column| self.0.rotation.of_data(stripe, column);
        let read = |column| self.read_member(member(column), place, urgent);
        (0..self.0.geometry.columns).map(read).collect()
    }

    /// Sends a read to a member, unless it is lost, or new and not filled there.
    pub(super) fn read_member(&self, member: u16, extent: Extent, urgent: bool) -> MemberRead {
        let read = || (member, self.push(member, Request::Read { extent }, urgent));
        self.holds(member, extent).then(read)
    }

    /// What members answer; nothing of those that are lost, now or before.
    pub(super) async fn all(
        &self,
        reads: Vec<MemberRead>,
    ) -> Result<Vec<Option<Payload>>, IoError> {
        let (mut contents, mut failed) = (Vec::with_capacity(reads.len()), None);
        for read in reads {
            let Some((member, answer)) = read else {
                contents.push(None);
                continue;
            };
            match answer.await {
                Ok(content) => contents.push(Some(content)),
                Err(error) if self.goes_on_without(member, &error) => contents.push(None),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(contents), Err)
    }

    /// Waits until no write is in these rows, and keeps others out.
    pub(super) async fn take(&self, rows: std::ops::Range<u64>) {
        loop {
            let freed = self.0.freed.wait();
            if self.took(rows.clone()) {
                return;
            }
            freed.await;
        }
    }

    /// Keeps others out of these rows, unless a write is in one of them.
    fn took(&self, rows: std::ops::Range<u64>) -> bool {
        let mut busy = self.0.busy.borrow_mut();
        let is_free = busy.range(rows.clone()).next().is_none();
        if is_free {
            busy.extend(rows);
        }
        is_free
    }
}
