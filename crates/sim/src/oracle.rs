//! What a block device may return, by the rules alone: a model small enough to check by eye.
//!
//! Each sector has the versions that clients wrote to it, with the moments of submission and
//! acknowledgement. Version `u` is *behind* version `v` if `u` was acknowledged before `v` was
//! submitted. Then:
//!
//! * a read may return any version that is not behind an acknowledged one;
//! * after a crash a sector may hold any version that is not behind a durable one.

use manylogs_block::{Extent, Payload, Sector};
use thiserror::Error;

/// A write, from its submission to its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteId(u64);

/// A flush, likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushId {
    submitted: u64,
}

/// A sector that holds what it must not.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("sector {lba} holds {found:?}, allowed are {allowed:?}")]
pub struct Wrong {
    /// The sector.
    pub lba: u64,
    /// What it holds.
    pub found: Option<Sector>,
    /// What it may hold.
    pub allowed: Vec<Sector>,
}

#[derive(Clone, Debug)]
struct Version {
    write: WriteId,
    content: Sector,
    submitted: u64,
    acknowledged: Option<u64>,
    durable: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Oracle {
    sectors: Vec<Vec<Version>>,
    /// Counts submissions and acknowledgements.
    moment: u64,
    /// Reads in flight, which may still return what is behind a durable version by now.
    reads: u64,
}

impl Version {
    fn is_behind(&self, newer: &Self) -> bool {
        self.acknowledged.is_some_and(|at| at < newer.submitted)
    }
}

impl Oracle {
    /// A device of `sectors` sectors, all zero.
    #[must_use]
    pub fn new(sectors: usize) -> Self {
        let zero = Version {
            write: WriteId(0),
            content: Sector::Zero,
            submitted: 0,
            acknowledged: Some(0),
            durable: true,
        };
        Self { sectors: vec![vec![zero]; sectors], moment: 0, reads: 0 }
    }

    /// Number of sectors.
    #[must_use]
    pub fn sectors(&self) -> usize {
        self.sectors.len()
    }

    /// A write, write-zeroes or discard is submitted.
    pub fn submit(&mut self, extent: Extent, payload: &Payload) -> WriteId {
        self.moment += 1;
        let write = WriteId(self.moment);
        for (lba, content) in extent.range().zip(payload.sectors()) {
            let version = Version {
                write,
                content: content.unwrap_or_default(),
                submitted: self.moment,
                acknowledged: None,
                durable: false,
            };
            self.at(lba).push(version);
        }
        write
    }

    /// It is acknowledged, with FUA or without.
    pub fn acknowledge(&mut self, extent: Extent, write: WriteId, fua: bool) {
        self.moment += 1;
        let moment = self.moment;
        for lba in extent.range() {
            for version in self.at(lba) {
                if version.write == write {
                    version.acknowledged = Some(moment);
                    version.durable |= fua;
                }
            }
            self.forget_impossible(lba);
        }
    }

    /// A flush is submitted.
    pub const fn submit_flush(&mut self) -> FlushId {
        self.moment += 1;
        FlushId { submitted: self.moment }
    }

    /// It is acknowledged: what was acknowledged before its submission is durable.
    pub fn acknowledge_flush(&mut self, flush: FlushId) {
        self.moment += 1;
        for lba in 0..self.sectors.len() as u64 {
            for version in self.at(lba) {
                version.durable |= version.acknowledged.is_some_and(|at| at < flush.submitted);
            }
            self.forget_impossible(lba);
        }
    }

    /// A read is submitted; keep the copy for [`Oracle::check_read`].
    pub fn submit_read(&mut self) -> Self {
        self.reads += 1;
        self.clone()
    }

    /// Checks what a read returned: what was possible when it was submitted, or was written since.
    ///
    /// # Errors
    /// The first sector that is wrong.
    pub fn check_read(
        &mut self,
        submitted: &Self,
        extent: Extent,
        read: &Payload,
    ) -> Result<(), Wrong> {
        self.reads -= 1;
        for (lba, found) in extent.range().zip(read.sectors()) {
            let index = manylogs_block::to_usize(lba);
            let before = submitted.sectors[index].as_slice();
            let mut allowed = possible(before, |version| version.acknowledged.is_some());
            let since = self.sectors[index].iter().filter(|v| v.submitted > submitted.moment);
            allowed.extend(since.map(|version| version.content.clone()));
            expect(lba, found, allowed)?;
        }
        Ok(())
    }

    /// Checks the whole device after a crash and recovery, and takes what it holds as the only
    /// truth from now on.
    ///
    /// # Errors
    /// The first sector that is wrong.
    pub fn check_recovered(&mut self, content: &Payload) -> Result<(), Wrong> {
        self.moment += 1;
        self.reads = 0;
        let moment = self.moment;
        for (lba, found) in (0..).zip(content.sectors()) {
            let allowed = possible(self.at(lba), |version| version.durable);
            let content = found.clone().unwrap_or_default();
            expect(lba, found, allowed)?;
            *self.at(lba) = vec![Version {
                write: WriteId(0),
                content,
                submitted: moment,
                acknowledged: Some(moment),
                durable: true,
            }];
        }
        Ok(())
    }

    fn at(&mut self, lba: u64) -> &mut Vec<Version> {
        &mut self.sectors[manylogs_block::to_usize(lba)]
    }

    /// A version behind a durable one is never seen again, but by reads in flight.
    fn forget_impossible(&mut self, lba: u64) {
        if self.reads > 0 {
            return;
        }
        let versions = self.at(lba);
        let durable: Vec<Version> = versions.iter().filter(|v| v.durable).cloned().collect();
        versions.retain(|version| !durable.iter().any(|newer| version.is_behind(newer)));
    }
}

fn possible(versions: &[Version], counts: impl Fn(&Version) -> bool) -> Vec<Sector> {
    let not_behind = |version: &&Version| {
        !versions.iter().any(|newer| counts(newer) && version.is_behind(newer))
    };
    versions.iter().filter(not_behind).map(|version| version.content.clone()).collect()
}

fn expect(lba: u64, found: Option<Sector>, allowed: Vec<Sector>) -> Result<(), Wrong> {
    if found.as_ref().is_some_and(|found| allowed.contains(found)) {
        Ok(())
    } else {
        Err(Wrong { lba, found, allowed })
    }
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
        oracle.clone().check_recovered(content).is_ok()
    }

    #[test]
    fn an_acknowledged_write_may_be_lost_until_a_flush() {
        let mut oracle = Oracle::new(1);
        let write = oracle.submit(ONE, &tag(1));
        oracle.acknowledge(ONE, write, false);
        assert!(recovered(&oracle, &Payload::zeroes(Sectors(1))));
        assert!(recovered(&oracle, &tag(1)));
        let before = oracle.submit_read();
        let read_zero = oracle.check_read(&before, ONE, &Payload::zeroes(Sectors(1)));
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
}
