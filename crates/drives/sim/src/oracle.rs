//! Model of the content that a block device may return under its contract. The model is small
//! enough to check by eye.
//!
//! Each sector has the versions that clients wrote to it, with the moments of submission and
//! acknowledgement. Version `u` is *behind* version `v` if `u` was acknowledged before `v` was
//! submitted. Then:
//!
//! * a read may return any version that is not behind an acknowledged one;
//! * after a crash a sector may hold any version that is not behind a durable one.
//!
//! A failed write may have taken effect or not: it is a version, but no version is behind it.

use manylogs_block::{Extent, Payload, Sector, to_usize};
use thiserror::Error;

/// A write, from its submission to its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteId(u64);

/// A flush, from its submission to its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushId {
    submitted: u64,
}

/// A read in flight with the content that it may return.
#[derive(Clone, Debug)]
pub struct ReadId {
    extent: Extent,
    submitted: u64,
    /// Possible versions of each sector at submission.
    allowed: Vec<Vec<Sector>>,
}

/// A sector with wrong content.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("sector {lba} holds {found:?}, allowed are {allowed:?}")]
pub struct Wrong {
    /// The sector.
    pub lba: u64,
    /// Content found.
    pub found: Option<Sector>,
    /// Allowed content.
    pub allowed: Vec<Sector>,
}

#[derive(Clone, Debug)]
struct Version {
    write: WriteId,
    content: Sector,
    submitted: u64,
    /// The moment of acknowledgement or failure.
    acknowledged: Option<u64>,
    failed: bool,
    durable: bool,
}

/// Model of the content that clients may read.
#[derive(Clone, Debug)]
pub struct Oracle {
    sectors: Vec<Vec<Version>>,
    /// Counts submissions and acknowledgements.
    moment: u64,
    /// Number of reads in flight. They may still return versions that are behind a durable version
    /// by now.
    reads: u64,
}

impl Version {
    /// The only possible version of a sector, durable since `moment`.
    const fn only(content: Sector, moment: u64) -> Self {
        let acknowledged = Some(moment);
        let write = WriteId(0);
        Self { write, content, submitted: moment, acknowledged, failed: false, durable: true }
    }

    fn is_behind(&self, newer: &Self) -> bool {
        self.acknowledged.is_some_and(|at| at < newer.submitted)
    }

    const fn is_seen_by_reads(&self) -> bool {
        self.acknowledged.is_some() && !self.failed
    }

    const fn is_durable(&self) -> bool {
        self.durable
    }
}

impl Oracle {
    /// A device of `sectors` sectors, all zero.
    #[must_use]
    pub fn new(sectors: usize) -> Self {
        let sectors = vec![vec![Version::only(Sector::Zero, 0)]; sectors];
        Self { sectors, moment: 0, reads: 0 }
    }

    /// The device has grown to `sectors` sectors: the new ones were never written.
    pub fn grow(&mut self, sectors: usize) {
        self.moment += 1;
        let moment = self.moment;
        self.sectors.resize_with(sectors, || vec![Version::only(Sector::Zero, moment)]);
    }

    /// Number of sectors.
    #[must_use]
    pub const fn sectors(&self) -> usize {
        self.sectors.len()
    }

    /// A counter that grows with every submission and every answer. While it stays the same, so
    /// does the allowed content.
    #[must_use]
    pub const fn moment(&self) -> u64 {
        self.moment
    }

    /// A write, write-zeroes or discard is submitted.
    pub fn submit(&mut self, extent: Extent, payload: &Payload) -> WriteId {
        self.moment += 1;
        let (write, submitted) = (WriteId(self.moment), self.moment);
        for (lba, content) in extent.range().zip(payload.sectors()) {
            let content = content.unwrap_or_default();
            let version = Version::only(content, submitted);
            let open = Version { write, acknowledged: None, durable: false, ..version };
            self.at(lba).push(open);
        }
        write
    }

    /// Records that a write was acknowledged, with or without FUA.
    pub fn acknowledge(&mut self, extent: Extent, write: WriteId, fua: bool) {
        self.answer(extent, write, |version| version.durable |= fua);
    }

    /// Records that a write failed.
    pub fn fail(&mut self, extent: Extent, write: WriteId) {
        self.answer(extent, write, |version| version.failed = true);
    }

    fn answer(&mut self, extent: Extent, write: WriteId, change: impl Fn(&mut Version)) {
        self.moment += 1;
        let moment = self.moment;
        for lba in extent.range() {
            for version in self.at(lba).iter_mut().filter(|version| version.write == write) {
                version.acknowledged = Some(moment);
                change(version);
            }
            self.forget_impossible(lba);
        }
    }

    /// A flush is submitted.
    pub const fn submit_flush(&mut self) -> FlushId {
        self.moment += 1;
        FlushId { submitted: self.moment }
    }

    /// Records that a flush was acknowledged: writes acknowledged before its submission are
    /// durable.
    pub fn acknowledge_flush(&mut self, flush: FlushId) {
        self.moment += 1;
        for lba in 0..self.sectors.len() as u64 {
            for version in self.at(lba).iter_mut().filter(|version| version.is_seen_by_reads()) {
                version.durable |= version.acknowledged.is_some_and(|at| at < flush.submitted);
            }
            self.forget_impossible(lba);
        }
    }

    /// A read is submitted.
    pub fn submit_read(&mut self, extent: Extent) -> ReadId {
        self.reads += 1;
        let sectors = &self.sectors[to_usize(extent.start.0)..to_usize(extent.end().0)];
        let allowed = sectors.iter().map(|s| possible(s, Version::is_seen_by_reads)).collect();
        ReadId { extent, submitted: self.moment, allowed }
    }

    /// Checks what a read returned: a version that was possible at its submission, or written
    /// since.
    ///
    /// # Errors
    /// The first sector that is wrong.
    pub fn check_read(&mut self, read: ReadId, content: &Payload) -> Result<(), Wrong> {
        self.reads -= 1;
        let sectors = read.extent.range().zip(read.allowed);
        for ((lba, mut allowed), found) in sectors.zip(content.sectors()) {
            let versions = self.at(lba).iter();
            let since = versions.filter(|version| version.submitted > read.submitted);
            allowed.extend(since.map(|version| version.content.clone()));
            if found.as_ref().is_none_or(|found| !allowed.contains(found)) {
                return Err(Wrong { lba, found, allowed });
            }
        }
        Ok(())
    }

    /// A read failed.
    pub fn fail_read(&mut self, read: ReadId) {
        self.reads -= 1;
        drop(read);
    }

    /// Checks the content of one sector after a crash.
    ///
    /// # Errors
    /// The content that the sector may hold, if `found` is not among it.
    pub fn check_sector(&self, lba: u64, found: &Sector) -> Result<(), Wrong> {
        let versions = &self.sectors[to_usize(lba)];
        let fits = |version: &Version| {
            *found == version.content && is_possible(version, versions, Version::is_durable)
        };
        if versions.iter().any(fits) {
            return Ok(());
        }
        let allowed = possible(versions, Version::is_durable);
        Err(Wrong { lba, found: Some(found.clone()), allowed })
    }

    /// Checks the whole device after a crash and recovery. Sectors that are absent in `content`
    /// could not be read: the caller decides whether that is allowed.
    ///
    /// # Errors
    /// The first sector that is wrong.
    pub fn check_crashed(&self, content: &Payload) -> Result<(), Wrong> {
        let mut sectors = (0..self.sectors.len() as u64).zip(content.sectors());
        sectors.try_for_each(|(lba, found)| match found {
            Some(found) => self.check_sector(lba, &found),
            None => Ok(()),
        })
    }

    /// As [`Oracle::check_crashed`]; also takes the content of the device as the only truth from
    /// now on.
    ///
    /// # Errors
    /// The first sector that is wrong.
    pub fn check_recovered(&mut self, content: &Payload) -> Result<(), Wrong> {
        self.check_crashed(content)?;
        self.moment += 1;
        self.reads = 0;
        let moment = self.moment;
        for (versions, found) in self.sectors.iter_mut().zip(content.sectors()) {
            // A sector that could not be read may hold any of the versions that the crash could
            // leave. These are not ordered any more: a later flush does not make durable a version
            // that the crash may have lost.
            let left =
                found.map_or_else(|| possible(versions, Version::is_durable), |one| vec![one]);
            *versions = left.into_iter().map(|one| Version::only(one, moment)).collect();
        }
        Ok(())
    }

    fn at(&mut self, lba: u64) -> &mut Vec<Version> {
        &mut self.sectors[to_usize(lba)]
    }

    /// Drops versions behind a durable one: only reads in flight can still see them.
    fn forget_impossible(&mut self, lba: u64) {
        let reads = self.reads;
        let versions = self.at(lba);
        if reads > 0 || versions.len() == 1 {
            return;
        }
        let durable: Vec<Version> = versions.iter().filter(|v| v.durable).cloned().collect();
        versions.retain(|version| !durable.iter().any(|newer| version.is_behind(newer)));
    }
}

fn is_possible(version: &Version, all: &[Version], counts: impl Fn(&Version) -> bool) -> bool {
    !all.iter().any(|newer| counts(newer) && version.is_behind(newer))
}

fn possible(versions: &[Version], counts: impl Fn(&Version) -> bool) -> Vec<Sector> {
    let possible = versions.iter().filter(|version| is_possible(version, versions, &counts));
    possible.map(|version| version.content.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylogs_block::Sectors;

    const ONE: Extent = Extent::new(0, 1);

    fn tag(tag: u64) -> Payload {
        Payload::tags(tag, Sectors(1))
    }

    fn recovered(oracle: &Oracle, content: &Payload) -> bool {
        oracle.check_crashed(content).is_ok()
    }

    #[test]
    fn an_acknowledged_write_may_be_lost_until_a_flush() {
        let mut oracle = Oracle::new(1);
        let write = oracle.submit(ONE, &tag(1));
        oracle.acknowledge(ONE, write, false);
        assert!(recovered(&oracle, &Payload::zeroes(Sectors(1))));
        assert!(recovered(&oracle, &tag(1)));
        let read = oracle.submit_read(ONE);
        let read_zero = oracle.check_read(read, &Payload::zeroes(Sectors(1)));
        assert!(read_zero.is_err(), "a read sees it at once");
        let flush = oracle.submit_flush();
        oracle.acknowledge_flush(flush);
        assert!(!recovered(&oracle, &Payload::zeroes(Sectors(1))));
        assert!(!recovered(&oracle, &tag(2)), "never written");
    }

    #[test]
    fn of_two_writes_in_flight_together_either_may_stay() {
        let mut oracle = Oracle::new(1);
        let first = oracle.submit(ONE, &tag(1));
        let second = oracle.submit(ONE, &tag(2));
        oracle.acknowledge(ONE, second, true);
        oracle.acknowledge(ONE, first, true);
        assert!(recovered(&oracle, &tag(1)) && recovered(&oracle, &tag(2)));
        assert!(!recovered(&oracle, &Payload::zeroes(Sectors(1))));
    }

    #[test]
    fn a_flush_does_not_cover_what_was_acknowledged_after_it_began() {
        let mut oracle = Oracle::new(1);
        let flush = oracle.submit_flush();
        let write = oracle.submit(ONE, &tag(1));
        oracle.acknowledge(ONE, write, false);
        oracle.acknowledge_flush(flush);
        assert!(recovered(&oracle, &Payload::zeroes(Sectors(1))));
    }

    #[test]
    fn what_a_crash_took_does_not_come_back_by_a_later_flush() {
        let mut oracle = Oracle::new(1);
        let durable = oracle.submit(ONE, &tag(1));
        oracle.acknowledge(ONE, durable, true);
        let lost = oracle.submit(ONE, &tag(2));
        oracle.acknowledge(ONE, lost, false);
        oracle.check_recovered(&Payload::absent(Sectors(1))).unwrap();
        let flush = oracle.submit_flush();
        oracle.acknowledge_flush(flush);
        assert!(recovered(&oracle, &tag(1)) && recovered(&oracle, &tag(2)));
        assert!(!recovered(&oracle, &tag(3)));
        let newer = oracle.submit(ONE, &tag(4));
        oracle.acknowledge(ONE, newer, true);
        assert!(recovered(&oracle, &tag(4)) && !recovered(&oracle, &tag(1)));
    }

    #[test]
    fn a_failed_write_may_be_there_or_not_until_the_next_one() {
        let mut oracle = Oracle::new(1);
        let write = oracle.submit(ONE, &tag(1));
        oracle.acknowledge(ONE, write, true);
        let failed = oracle.submit(ONE, &tag(2));
        oracle.fail(ONE, failed);
        assert!(recovered(&oracle, &tag(1)) && recovered(&oracle, &tag(2)));
        let write = oracle.submit(ONE, &tag(3));
        oracle.acknowledge(ONE, write, true);
        assert!(recovered(&oracle, &tag(3)));
        assert!(!recovered(&oracle, &tag(1)) && !recovered(&oracle, &tag(2)));
    }
}
