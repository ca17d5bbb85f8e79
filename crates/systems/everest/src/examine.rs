//! Reading the label of a store, and judging a store that is not lent, without writing anything.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, IoError, Sectors};
use manylogs_engine::{read_copy, retire_failed};
use manylogs_logstore::ondisk::root::Left;
use manylogs_logstore::store::Store;
use manylogs_logstore::{Damage, Log, LogId, Scanned, Space};
use manylogs_plant::{self as plant, Bug};

use crate::call::{BaseId, Opening, StoreId};
use crate::error::StoreError;
use crate::lending::Lending;
use crate::ondisk::Superblock;
use crate::open::{Found, seal_all_but_the_newest, versions_of};
use crate::store::{CircularStore, State};
use crate::versions::Range;

/// What the label of a store's device says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLabel {
    /// Name of the store.
    pub store: StoreId,
    /// Number of the device in the store, from 0.
    pub device: u16,
    /// Devices of the store.
    pub devices: u16,
    /// Size of the device.
    pub sectors: Sectors,
    /// Length of a log.
    pub log: Sectors,
    /// Logs of the device.
    pub logs: u64,
}

impl StoreLabel {
    /// Bytes of a label.
    pub const BYTES: usize = 4096;

    /// The places of the label and its copy, on a device with this number of sectors.
    #[must_use]
    pub fn places(device: Sectors) -> [Extent; 2] {
        Superblock::places(device)
    }

    /// The label at the start of `bytes`; `None` if there is none, or it is damaged.
    ///
    /// # Errors
    /// [`StoreError::Version`] if another version of the program wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, StoreError> {
        let label = Superblock::decode(bytes).transpose()?;
        Ok(label.map(|label| Self {
            store: label.store,
            device: label.device,
            devices: label.devices,
            sectors: label.sectors,
            log: label.log,
            logs: label.log_count(),
        }))
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFinding {
    /// A copy of a device's label is damaged.
    Label {
        /// The device, in the order given.
        device: usize,
    },
    /// As many of the two places hold no whole root: the next opening writes one of them.
    Roots(u32),
    /// Records that had been durable are damaged. If the header of one is not whole, it is unknown
    /// what it held, and the store cannot be opened.
    Records {
        /// The log.
        log: LogId,
        /// Where.
        damage: Damage,
    },
    /// What the store holds of a base volume differs from its checksums, or cannot be read.
    Content {
        /// The base volume.
        base: BaseId,
        /// In addresses of its clients.
        extent: Extent,
    },
    /// The list of base volumes cannot be read: it is unknown whose data the store holds.
    Owners,
}

impl StoreFinding {
    /// Whether data is lost, unless another store has it. Else only a copy of a structure is.
    #[must_use]
    pub const fn is_of_data(&self) -> bool {
        matches!(self, Self::Records { .. } | Self::Content { .. } | Self::Owners)
    }
}

/// A log that is not blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFound {
    /// The log.
    pub log: LogId,
    /// Its place on its device.
    pub region: Extent,
    /// Its epoch: the sequence of its first record.
    pub epoch: u64,
    /// Sectors in use.
    pub used: Sectors,
    /// Sectors of versions that count.
    pub live: Sectors,
    /// Records.
    pub records: u64,
}

/// What a store holds of a base volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldOf {
    /// The base volume.
    pub base: BaseId,
    /// Its newest opening that the store served.
    pub opening: Opening,
    /// The number of its newest session in that opening.
    pub session: u32,
    /// What is held, in addresses of its clients, the oldest first.
    pub ranges: Vec<Range>,
}

impl HeldOf {
    /// Sectors of which a version is held.
    #[must_use]
    pub fn sectors(&self) -> Sectors {
        Sectors(self.ranges.iter().map(|range| range.extent.len.0).sum())
    }
}

/// A store as its devices have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExaminedStore {
    /// Name of the store.
    pub store: StoreId,
    /// Size of its devices.
    pub sectors: Sectors,
    /// Its logs.
    pub log_count: u64,
    /// Whether it was closed in order.
    pub is_closed: bool,
    /// The logs that are not blank.
    pub logs: Vec<LogFound>,
    /// The base volumes that it served, with what it holds of them.
    pub held: Vec<HeldOf>,
    /// What is wrong.
    pub findings: Vec<StoreFinding>,
}

impl CircularStore {
    /// Judges the store on `devices`, given in the order in which it was made. All records are
    /// read, and all content that the store would return is compared with its checksums. Nothing is
    /// written. The store must not be open.
    ///
    /// # Errors
    /// If they hold no store, or one of another format version, no root is whole or the newest is
    /// too old, or a device cannot be read and the medium is not at fault.
    pub async fn examine(
        runtime: Handle,
        devices: Vec<Rc<dyn BlockDevice>>,
    ) -> Result<ExaminedStore, StoreError> {
        let found = Found::on(&runtime, devices).await?;
        let mut findings = found.wrong_in_labels().await?;
        let roots = found.roots().await?;
        // Of the places on two devices two are in use.
        let damaged = roots.damaged.saturating_sub(if found.devices.len() > 1 { 2 } else { 0 });
        findings.extend((damaged > 0).then_some(StoreFinding::Roots(damaged)));
        let (root, slot) = roots.newest.ok_or(StoreError::NoRoot)?;
        let is_closed = root.left == Left::Closed;
        let store = found.superblocks[0].store;
        let mut store = Store::new(store, found.logs(), root, slot % 2);
        retire_failed(&mut store);
        let mut records = Vec::new();
        let note = |log, scanned: &Scanned| {
            let damage = scanned.damage.iter().copied();
            findings.extend(damage.map(|damage| StoreFinding::Records { log, damage }));
            records.push((log, scanned.records.len() as u64));
            Ok(())
        };
        let entries = found.recover_with(&mut store, note).await?;
        let logs = records.into_iter().filter_map(|(log, records)| log_found(&store, log, records));
        let mut examined = ExaminedStore {
            store: store.volume(),
            sectors: Sectors(found.superblocks.iter().map(|device| device.sectors.0).sum()),
            log_count: store.logs().count() as u64,
            is_closed,
            logs: logs.collect(),
            held: Vec::new(),
            findings,
        };
        let (versions, ages) = versions_of(&store, &entries);
        let head = seal_all_but_the_newest(&mut store);
        // Its tasks do not run, so that it only reads.
        let store = found.assemble(runtime, State { store, versions, ages, head });
        match Lending::open(store.clone(), None).await {
            Ok(lending) => {
                for (base, space, session) in lending.owners() {
                    let ranges = store.ranges(space);
                    let damaged = store.unreadable(space, &ranges).await?;
                    let content = |extent| StoreFinding::Content { base, extent };
                    examined.findings.extend(damaged.into_iter().map(content));
                    let (opening, session) = (session.opening, session.number);
                    examined.held.push(HeldOf { base, opening, session, ranges });
                }
            }
            Err(error) if error.is_damage() => examined.findings.push(StoreFinding::Owners),
            Err(error) => return Err(error.into()),
        }
        Ok(examined)
    }

    /// Those of the ranges whose content is damaged.
    async fn unreadable(&self, space: Space, ranges: &[Range]) -> Result<Vec<Extent>, IoError> {
        let mut damaged = Vec::new();
        for Range { extent, .. } in ranges.iter().filter(|_| !plant::is(Bug::HeldNotCompared)) {
            match self.read(space, *extent).await {
                Ok(_) => {}
                Err(error) if error.is_damage() => damaged.push(*extent),
                Err(error) => return Err(error),
            }
        }
        Ok(damaged)
    }
}

impl Found {
    /// What is wrong with the labels.
    async fn wrong_in_labels(&self) -> Result<Vec<StoreFinding>, StoreError> {
        let mut wrong = Vec::new();
        for (device, superblock) in self.superblocks.iter().enumerate() {
            for place in Superblock::places(superblock.sectors) {
                let read = read_copy(&self.reads[device], place).await?;
                let bytes = read.ok().and_then(|read| read.to_bytes()).unwrap_or_default();
                if Superblock::decode(&bytes) != Some(Ok(*superblock)) {
                    wrong.push(StoreFinding::Label { device });
                }
            }
        }
        Ok(wrong)
    }
}

fn log_found(store: &Store, id: LogId, records: u64) -> Option<LogFound> {
    let log: &Log = store.logs().get(id)?;
    Some(LogFound {
        log: id,
        region: store.logs().region(id),
        epoch: log.epoch().0,
        used: log.used(),
        live: Sectors(log.live()),
        records,
    })
}
