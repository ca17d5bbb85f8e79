//! The logs of a store: which of them have room, and how much room there is in total.

use std::ops::RangeBounds;

use crate::{DataSequence, Log, LogId, RecordShape};
use manylogs_block::{Extent, Lba, Sectors, narrow};

use super::log_set::LogSet;
use manylogs_plant::{self as plant, Bug};

mod listed;
mod shut;

use listed::Listed;

/// A log without live versions begins anew if more than this share of it is filled, as a divisor.
pub(super) const KEPT_SHARE: u64 = 16;

/// Number of one of a store's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device(pub u16);

/// Logs by number; an unused one costs only a pointer.
#[derive(Debug)]
pub struct Logs {
    logs: Vec<Option<Box<Log>>>,
    regions: Vec<Extent>,
    /// The device of each log; empty if there is only one device.
    devices: Vec<Device>,
    /// Logs that are neither full nor retired.
    open: LogSet,
    /// The log whose content is being moved away; it takes no records meanwhile.
    aside: Option<LogId>,
    /// No log takes records any more.
    closed: bool,
    /// Longest record that a single entry or batch may need.
    largest_record: Sectors,
    shape: RecordShape,
    /// Sectors that can be appended, whatever the lengths of the entries: see [`Logs::room`].
    room: u64,
    used: u64,
    /// Number of logs out of use.
    retired: usize,
    /// Length of all logs together.
    sectors: u64,
    /// Whether logs keep the extents of their entries ([`Log::inverse`]), and of which.
    inverse: Option<Listed>,
    /// Whether the device must be reset at a log before each epoch.
    reset_first: bool,
    /// Devices whose logs take no records: see [`Logs::shut`].
    shut: Vec<Device>,
    /// Most bytes of a log's summary, if logs keep one.
    summaries: Option<usize>,
}

impl Logs {
    /// Logs in `regions` that were never used. No entry needs a record longer than
    /// `largest_record`.
    pub fn new(regions: &[Extent], largest_record: Sectors, shape: RecordShape) -> Self {
        let mut logs = Self {
            logs: std::iter::repeat_with(|| None).take(regions.len()).collect(),
            regions: regions.to_vec(),
            devices: Vec::new(),
            open: LogSet::default(),
            aside: None,
            closed: false,
            largest_record,
            shape,
            room: 0,
            used: 0,
            retired: 0,
            sectors: regions.iter().map(|region| region.len.0).sum::<u64>().max(1),
            inverse: None,
            reset_first: false,
            shut: Vec::new(),
            summaries: None,
        };
        logs.count_room();
        logs
    }

    /// As [`Logs::new`], on several devices: the regions are in order of device, then of address.
    pub fn on_devices(
        regions: &[(Device, Extent)],
        largest_record: Sectors,
        shape: RecordShape,
    ) -> Self {
        let extents: Vec<Extent> = regions.iter().map(|(_, extent)| *extent).collect();
        let devices = regions.iter().map(|(device, _)| *device).collect();
        Self { devices, ..Self::new(&extents, largest_record, shape) }
    }

    /// Logs in the same places, without any content.
    pub fn blank(&self) -> Self {
        let (devices, inverse, reset_first) =
            (self.devices.clone(), self.inverse, self.reset_first);
        let summaries = self.summaries;
        let new = Self::new(&self.regions, self.largest_record, self.shape);
        let mut blank = Self { devices, inverse, reset_first, summaries, ..new };
        self.shut.iter().for_each(|device| blank.shut(*device));
        blank
    }

    /// The same logs on devices that must be reset before they are written again, such as the zones
    /// of a shingled drive: each epoch must begin ([`Log::begin`]) before its first entry.
    #[must_use]
    pub fn with_reset_first(self) -> Self {
        Self { reset_first: true, ..self }
    }

    /// The same logs; each of them keeps a summary of at most so many bytes ([`Log::summary`]), and
    /// is held when it begins anew: [`Log::hold`].
    #[must_use]
    pub fn with_summaries(self, most: usize) -> Self {
        Self { summaries: Some(most), ..self }
    }

    /// Whether logs keep summaries: see [`Logs::with_summaries`].
    pub const fn keep_summaries(&self) -> bool {
        self.summaries.is_some()
    }

    /// Takes the logs out and leaves blank ones behind.
    pub fn take(&mut self) -> Self {
        let blank = self.blank();
        std::mem::replace(self, blank)
    }

    /// Parameters of the lengths of records.
    pub const fn shape(&self) -> RecordShape {
        self.shape
    }

    /// Number of logs.
    pub fn count(&self) -> usize {
        self.regions.len()
    }

    /// Numbers of all logs.
    pub fn ids(&self) -> impl Iterator<Item = LogId> + use<> {
        (0..narrow::<_, u32>(self.regions.len())).map(LogId)
    }

    /// The log, if it was ever used.
    pub fn get(&self, id: LogId) -> Option<&Log> {
        self.logs[id.0 as usize].as_deref()
    }

    /// Whether every log has failed.
    pub fn all_retired(&self) -> bool {
        self.retired == self.logs.len()
    }

    /// Whether a log has failed.
    pub const fn any_retired(&self) -> bool {
        self.retired > 0
    }

    /// Logs that were used.
    pub fn iter(&self) -> impl Iterator<Item = &Log> {
        self.logs.iter().filter_map(|log| log.as_deref())
    }

    /// Place of the log.
    pub fn region(&self, id: LogId) -> Extent {
        self.regions[id.0 as usize]
    }

    /// The device that the log is on.
    pub fn device(&self, id: LogId) -> Device {
        self.devices.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// Changes a log and updates the account of its room.
    pub fn with<T>(&mut self, id: LogId, change: impl FnOnce(&mut Log) -> T) -> T {
        let (region, mut shape) = (self.regions[id.0 as usize], self.shape);
        if plant::is(Bug::RecordsShareSectors) {
            shape.physical = Sectors(1);
        }
        let mut log = self.logs[id.0 as usize]
            .take()
            .unwrap_or_else(|| Box::new(Log::new(id, region, shape)));
        if self.inverse.is_some() {
            log.keep_inverse();
        }
        if self.reset_first {
            log.reset_first();
        }
        if let Some(most) = self.summaries {
            log.keep_summary(most);
        }
        let (room, used) = (self.room_of(&log), log.used().0);
        let was_retired = usize::from(log.is_retired());
        let result = change(&mut log);
        let room_now = self.room_of(&log);
        self.room = self.room - room + room_now;
        self.used = self.used - used + log.used().0;
        let is_retired = usize::from(log.is_retired());
        self.retired = self.retired - was_retired + is_retired;
        self.open.set(id, room_now > 0);
        self.logs[id.0 as usize] = Some(log);
        if was_retired != is_retired {
            // The room of every log depends on how many logs are in use.
            self.count_room();
        }
        result
    }

    /// From now on the logs are only emptied: none takes records.
    pub fn take_no_more(&mut self) {
        self.closed = true;
        self.count_room();
    }

    /// Keeps a log from taking records while its content moves; its room does not count meanwhile.
    pub fn set_aside(&mut self, id: LogId) {
        self.with(id, |_| ());
        self.room -= self.logs[id.0 as usize].as_ref().map_or(0, |log| self.room_of(log));
        self.open.set(id, false);
        self.aside = Some(id);
    }

    /// The log whose content moves.
    pub const fn aside(&self) -> Option<LogId> {
        self.aside
    }

    /// Lets the log that was set aside take records again.
    pub fn put_back(&mut self) {
        let Some(id) = self.aside.take() else { return };
        let room = self.logs[id.0 as usize].as_ref().map_or(0, |log| self.room_of(log));
        self.room += room;
        self.open.set(id, room > 0);
    }

    fn room_of(&self, log: &Log) -> u64 {
        if self.closed || log.is_retired() || log.is_sealed() || self.aside == Some(log.id()) {
            return 0;
        }
        if self.is_shut_for(log.id()) {
            return 0;
        }
        log.free().0.saturating_sub(self.left_out().0)
    }

    /// The part of each log's free space that does not count as room: the longest record, so that
    /// no entry fails to fit because every log's end is too short. If only one log is in use, all
    /// of its free space counts.
    fn left_out(&self) -> Sectors {
        let in_use = self.regions.len() - self.retired;
        let is_alone = in_use == 1 && !plant::is(Bug::LastLogLeavesRecordOut);
        if is_alone { Sectors(0) } else { self.largest_record }
    }

    /// Makes room for longer entries: each log leaves out more from now on. It never leaves out
    /// less, so that an entry that was let in finds a log even if shorter ones go first.
    pub fn raise_largest_record(&mut self, largest: Sectors) {
        self.largest_record = self.largest_record.max(largest);
        self.count_room();
    }

    fn count_room(&mut self) {
        (self.room, self.open) = (0, LogSet::none_of(self.regions.len()));
        for id in self.ids() {
            let room = self.room_in(id);
            self.room += room;
            self.open.set(id, room > 0);
        }
    }

    fn room_in(&self, id: LogId) -> u64 {
        if let Some(log) = self.get(id) {
            return self.room_of(log);
        }
        if self.closed || self.is_shut_for(id) {
            return 0;
        }
        // The first record of a log may be one without entries.
        let (_, head) = self.shape.len_of(0, 0, Sectors(0));
        self.region(id).len.0.saturating_sub(head.0 + self.left_out().0)
    }

    /// Whether there is room for a record of `needed` sectors in the logs in use once they are as
    /// empty as a checkpoint makes them.
    #[must_use]
    pub fn may_ever_take(&self, needed: Sectors) -> bool {
        let left_out = self.left_out();
        let is_in_use = |id: &LogId| self.get(*id).is_none_or(|log| !log.is_retired());
        let in_use = self.ids().filter(|id| is_in_use(id) && !self.is_shut_for(*id));
        let room = in_use.map(|id| self.when_emptied(id).saturating_sub(left_out.0));
        !self.closed && room.sum::<u64>() >= needed.0
    }

    /// Free sectors of a log after a checkpoint: it may stay filled to a sixteenth, and a record
    /// without entries may begin it.
    fn when_emptied(&self, id: LogId) -> u64 {
        let (_, head) = self.shape.len_of(0, 0, Sectors(0));
        let len = self.region(id).len.0;
        len.saturating_sub(head.0.max(len / KEPT_SHARE))
    }

    /// The longest record that logs of these lengths can take again and again, if checkpoints empty
    /// them in between, even if some logs fail: see [`Logs::room`].
    ///
    /// A single log must have space for the record beside the sixteenth that stays filled. If there
    /// are more, each leaves out a record's length, and the rest of the two shortest must take a
    /// record: 2 (15/16 log - record) is at least a record if the record is at most five eighths of
    /// a log.
    #[must_use]
    pub fn longest_record(shortest: Sectors) -> Sectors {
        Sectors(shortest.0 / 8 * 5)
    }

    /// Changes a log in a way that does not affect its room: pins and live sectors.
    pub fn adjust(&mut self, id: LogId, change: impl FnOnce(&mut Log)) {
        if let Some(log) = &mut self.logs[id.0 as usize] {
            change(log);
        }
    }

    /// Sectors that can be appended, whatever the lengths of the entries. Each log leaves out the
    /// length of the largest record, unless there is only one log: a log with more than that free
    /// takes any entry. So as long as the reserved room is within this, some log takes each entry.
    pub const fn room(&self) -> u64 {
        self.room
    }

    /// Fraction of all log space that is filled.
    pub fn occupancy(&self) -> f64 {
        self.used as f64 / self.sectors as f64
    }

    /// Whether the log takes any entry: it has room and is not set aside.
    pub fn is_open(&self, id: LogId) -> bool {
        self.open.contains(id)
    }

    /// Open logs among `numbers`, in order of number, which is the order of addresses.
    pub fn open_in(
        &self,
        numbers: impl RangeBounds<u32>,
    ) -> impl DoubleEndedIterator<Item = LogId> {
        self.open.within(numbers)
    }

    /// Number of logs that come before those logs of `device` that begin behind `at`.
    pub fn count_until(&self, device: Device, at: Lba) -> u32 {
        // Without a list of devices all logs are on the first.
        let alone = self.devices.is_empty();
        let until = if alone {
            self.regions.len()
        } else {
            self.devices.partition_point(|on| *on <= device)
        };
        let from = if alone { 0 } else { self.devices.partition_point(|on| *on < device) };
        let before = self.regions[from..until].partition_point(|region| region.start <= at);
        narrow(from + before)
    }

    /// Whether the log has no entries and may take some, at least after its epoch has begun. The
    /// record that begins the epoch may be under way.
    pub fn is_blank(&self, id: LogId) -> bool {
        !self.is_shut_for(id) && self.is_unused(id)
    }

    /// Whether the log has no entries and has not failed. Its device may be shut.
    pub fn is_unused(&self, id: LogId) -> bool {
        self.get(id).is_none_or(|log| log.is_empty() && !log.is_retired())
    }

    /// Numbers of the logs on a device.
    pub(super) fn ids_on(&self, device: Device) -> Vec<LogId> {
        self.ids().filter(|id| self.device(*id) == device).collect()
    }

    /// Whether entries may be appended to the log: see [`Log::is_begun`].
    pub fn is_begun(&self, id: LogId, floor: DataSequence) -> bool {
        self.get(id).map_or(!self.reset_first, |log| log.is_begun(floor))
    }

    /// Whether the log takes a record of `needed` sectors. An entry that was accepted under other
    /// settings may find room only in logs that no longer count as open.
    pub fn takes(&self, id: LogId, needed: Sectors) -> bool {
        let may = !self.closed && self.aside != Some(id) && !self.is_shut_for(id);
        may && self.get(id).is_none_or(|log| log.accepts(needed))
    }
}

#[cfg(test)]
mod tests;
