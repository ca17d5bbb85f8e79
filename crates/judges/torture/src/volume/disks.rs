//! The disk of a world: a single disk, or the members of an array.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs::{Layout, Phase, PhaseProbe};
use manylogs_array::Members;
use manylogs_block::{BlockDevice, Extent, Geometry, Handle, Lba, Payload, Rng, Sectors, Split};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Survival};

use crate::device::{PhasedDisk, last_phase};
use crate::volume::arrays::ArrayLife;
use crate::volume::copies::members_of;
use crate::volume::dealt::homes_on;
use crate::volume::failing_array::Faults;
use crate::volume::in_use::InUse;
use crate::volume::large::LargeWrites;

/// Content of a disk, or of each member of an array: the copies of a column follow one another.
#[derive(Clone)]
pub(crate) struct DiskImages {
    pub(crate) each: Vec<DiskImage>,
    pub(crate) array: Option<Geometry>,
    /// Length of each disk, once it was in use.
    pub(crate) member: Sectors,
    /// Which members have missed a write, or are missing. The array goes on without them.
    pub(crate) lost: Vec<bool>,
    /// Which members are new, and not filled yet: what they hold counts for nothing.
    pub(crate) new: Vec<bool>,
    /// Whether the copies of a column may differ, or parity may not fit, in what is not in `homes`.
    pub(crate) apart: bool,
    /// The homes of the volume, once it is made.
    pub(crate) homes: Option<Rc<[Extent]>>,
    /// The stripes that clients were writing, if a crash may cost only those of all homes.
    pub(crate) written: Option<Rc<[Extent]>>,
    /// What the array does in use.
    pub(crate) life: ArrayLife,
}

impl DiskImages {
    /// Blank disks.
    pub(crate) fn blank(array: Option<Geometry>) -> Self {
        let members = array.map_or(1, |it| usize::from(it.columns * it.copies + it.parity));
        Self::of(vec![DiskImage::default(); members], array)
    }

    /// A single disk.
    pub(crate) fn one(disk: DiskImage) -> Self {
        Self::of(vec![disk], None)
    }

    fn of(each: Vec<DiskImage>, array: Option<Geometry>) -> Self {
        let (lost, new) = (vec![false; each.len()], vec![false; each.len()]);
        let member = Sectors(0);
        let (apart, homes, written, life) = (false, None, None, ArrayLife::default());
        Self { each, array, member, lost, new, apart, homes, written, life }
    }

    /// The only disk, or the first member of an array.
    pub(crate) fn first(&self) -> &DiskImage {
        &self.each[0]
    }

    /// As [`DiskImages::first`], for damage.
    pub(crate) fn first_mut(&mut self) -> &mut DiskImage {
        &mut self.each[0]
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        let (first, others) = (self.each[0].fingerprint(), &self.each[1..]);
        let of_member =
            |(member, image): (u64, &DiskImage)| Rng::new(image.fingerprint() ^ member).next_u64();
        let content = (1..).zip(others).map(of_member).fold(first, u64::wrapping_add);
        let states = (1..).zip(self.lost.iter().zip(&self.new));
        let salt = |(member, (lost, new)): (u64, (&bool, &bool))| match (lost, new) {
            (true, _) => Rng::new(!member).next_u64(),
            (false, true) => Rng::new(!member << 8).next_u64(),
            (false, false) => 0,
        };
        states.map(salt).fold(content, u64::wrapping_add)
    }

    pub(crate) fn settle(&mut self) {
        self.each.iter_mut().for_each(DiskImage::settle);
    }

    /// The content that a user of the disk or the array reads.
    pub(crate) fn read(&self, extent: Extent) -> Payload {
        let Some(array) = self.array else { return self.first().read(extent) };
        if array.parity > 0 {
            return self.read_rows(array, extent);
        }
        let split = Split::of(array.chunks(extent));
        let read = |column: u16, extent| self.each[self.copies(column)[0]].read(extent);
        split.assemble(split.shares.iter().map(|share| read(share.column, share.extent)).collect())
    }
}

/// See the module. Clones are the same disks.
#[derive(Clone)]
pub(crate) struct Disks {
    pub(crate) each: Vec<CrashDisk>,
    pub(crate) array: Option<Geometry>,
    /// What the array knows of its members: of each column if there are copies, or of all if it has
    /// parity.
    pub(crate) known: Vec<Members>,
    /// What the array does in use.
    pub(crate) life: ArrayLife,
    /// The array that is in use, once it is. It is the kernel's, and outlives the volume's process.
    pub(super) in_use: Rc<RefCell<Option<InUse>>>,
    /// The phase of the volume that uses the array.
    pub(super) probe: Rc<RefCell<PhaseProbe>>,
    homes: Rc<RefCell<Option<Rc<[Extent]>>>>,
    /// Whether the volume closes the write hole of its homes.
    closes_hole: Rc<Cell<bool>>,
    pub(super) large: LargeWrites,
    /// Requests that the array fails, if it has parity.
    pub(crate) faults: Faults,
    /// The runtime of the array, which is the kernel's: it outlives the volume's process.
    pub(super) runtime: Handle,
    /// The phase of the last request to an array.
    pub(super) last: Rc<Cell<u8>>,
}

impl Disks {
    /// Disks that hold `images` and together have the capacity in `config`; see [`CrashDisk::new`].
    pub(crate) fn new(runtime: Handle, config: CrashDiskConfig, images: DiskImages) -> Self {
        let DiskImages { each, array, lost, new, apart, homes, life, .. } = images;
        let copies = array.map_or(1, |array| usize::from(array.copies));
        let columns = array.map_or(1, |array| u64::from(array.columns));
        let capacity = Sectors(config.capacity.0 / columns);
        let config = CrashDiskConfig { capacity, ..config };
        let disk = |image| CrashDisk::new(runtime.clone(), config, image);
        let each = each.into_iter().map(disk).collect();
        let known = match array {
            Some(array) if array.parity > 0 => {
                vec![Members::with_parity(&lost, array.parity, apart).with_new(&new)]
            }
            _ if copies > 1 => {
                let columns = lost.chunks(copies).zip(new.chunks(copies));
                columns.map(|(lost, new)| Members::with_copies(lost, apart).with_new(new)).collect()
            }
            _ => Vec::new(),
        };
        let homes = Rc::new(RefCell::new(homes));
        Self {
            each,
            array,
            known,
            life,
            in_use: Rc::default(),
            probe: Rc::default(),
            homes,
            closes_hole: Rc::default(),
            large: LargeWrites::default(),
            faults: Faults::default(),
            runtime,
            last: Rc::default(),
        }
    }

    /// The only disk, or the first member of an array.
    pub(crate) fn first(&self) -> &CrashDisk {
        &self.each[0]
    }

    /// The members of a column that are neither lost nor being filled.
    pub(crate) fn live(&self, column: u16) -> Vec<usize> {
        let members = members_of(self.array, column);
        let known = self.known.get(usize::from(column)).filter(|_| self.rows().is_none());
        let first = members.start;
        let is_live = |at: &usize| {
            let missing =
                |known: &Members| known.is_lost(*at - first) || known.unfilled()[*at - first];
            !known.is_some_and(missing)
        };
        members.filter(is_live).collect()
    }

    /// The disk for the volume. It labels requests with the phase of `probe`. An array is the same
    /// one each time: the kernel's.
    pub(crate) fn device(&self, probe: &PhaseProbe) -> Rc<dyn BlockDevice> {
        self.probe.replace(probe.clone());
        let Some(array) = self.array else {
            let last = Rc::clone(&self.last);
            let (disk, probe) = (self.first().clone(), Rc::clone(&self.probe));
            return Rc::new(PhasedDisk { disk, probe, last });
        };
        let mut in_use = self.in_use.borrow_mut();
        Rc::clone(&in_use.get_or_insert_with(|| self.start(array)).device)
    }

    /// Whether the copies of a column may differ, or parity may not fit.
    pub(super) fn apart(&self) -> bool {
        self.known.iter().any(|known| known.behind().is_some())
    }

    /// Tells the disks where the homes of the volume on them are: see [`DiskImages::resync`].
    pub(crate) fn set_homes(&self, layout: &Layout) {
        if !self.known.is_empty() {
            self.homes.replace(Some(homes_on(layout, self.array)));
            self.closes_hole.set(!layout.images().is_empty());
        }
    }

    pub(crate) fn remember_writes(&self) {
        self.each.iter().for_each(CrashDisk::remember_writes);
    }

    /// Number of events so far. Crashes between the same two events cannot be told apart.
    pub(crate) fn events(&self) -> u64 {
        self.each.iter().map(CrashDisk::events).sum()
    }

    /// The phase of the volume's last request.
    pub(crate) fn phase(&self) -> Phase {
        match self.array {
            Some(_) => Phase::ALL[usize::from(self.last.get())],
            None => last_phase(self.first()),
        }
    }

    pub(super) fn images(&self, each: Vec<DiskImage>) -> DiskImages {
        let (lost, new) = match self.known.as_slice() {
            [] => (vec![false; self.each.len()], vec![false; self.each.len()]),
            known => (
                known.iter().flat_map(Members::lost).collect(),
                known.iter().flat_map(Members::unfilled).collect(),
            ),
        };
        let homes = self.homes.borrow().clone();
        let (array, life, apart) = (self.array, self.life, self.apart());
        let member = self.first().capabilities().capacity;
        let closed = homes.as_ref().filter(|_| self.closes_hole.get());
        let written = closed.map(|homes| self.large.within(homes));
        DiskImages { each, array, member, lost, new, apart, homes, written, life }
    }

    /// The array, if it has parity.
    pub(super) fn rows(&self) -> Option<Geometry> {
        self.array.filter(|array| array.parity > 0)
    }

    /// The images after a crash. Without a member, what a crash leaves of a row of homes would make
    /// other homes wrong, which is told: so writes to homes arrive as a whole then.
    fn crashed(&self, each: Vec<DiskImage>, rng: &mut Rng) -> DiskImages {
        let mut images = self.images(each);
        if let Some(array) = self.rows().filter(|_| self.is_degraded()) {
            let mut whole = |disk: &CrashDisk| disk.after_power_cut(Survival::Everything, rng);
            let whole = self.each.iter().map(&mut whole).collect();
            images.take_homes(array, self.images(whole));
        }
        images
    }

    fn resynced(&self, each: Vec<DiskImage>, rng: &mut Rng) -> DiskImages {
        let images = self.crashed(each, rng);
        match self.rows() {
            Some(array) => images.resync_rows(array, rng),
            None => images.resync(rng),
        }
    }

    /// Content of the disks after their user was killed.
    pub(crate) fn after_kill(&self, rng: &mut Rng) -> DiskImages {
        let each = self.each.iter().map(|disk| disk.after_kill(rng)).collect();
        self.resynced(each, rng)
    }

    /// Content of the disks after a power cut. Each member's cache is lost in its own way.
    pub(crate) fn after_power_cut(
        &self,
        first: Survival,
        rng: &mut Rng,
        draw: impl Fn(&mut Rng) -> Survival,
    ) -> DiskImages {
        let mut each = vec![self.first().after_power_cut(first, rng)];
        for disk in &self.each[1..] {
            let survival = draw(rng);
            each.push(disk.after_power_cut(survival, rng));
        }
        self.resynced(each, rng)
    }

    /// Whether the copies of a column may differ, so that the drives that were read can be lost. An
    /// array with parity can lose members with any crash, once the volume is made.
    pub(crate) fn may_lose(&self) -> bool {
        if self.rows().is_some() {
            return self.homes.borrow().is_some();
        }
        self.apart()
    }

    /// Content of the disks after a crash that takes the member with it that each column read from,
    /// if the column has another one. Logs, roots and superblocks were not brought in step. `None`
    /// if no member can be lost, or the copies did not differ.
    pub(crate) fn after_loss(
        &self,
        rng: &mut Rng,
        draw: impl Fn(&mut Rng) -> Survival,
    ) -> Option<DiskImages> {
        if !self.may_lose() {
            return None;
        }
        let kill = rng.one_in(2);
        let after = |disk: &CrashDisk| {
            let survival = draw(rng);
            if kill { disk.after_kill(rng) } else { disk.after_power_cut(survival, rng) }
        };
        let each = self.each.iter().map(after).collect();
        match self.rows() {
            Some(array) => self.crashed(each, rng).without_some_members(array, rng),
            None => self.images(each).without_read_members(),
        }
    }

    /// Checks that the copies of each column hold the same, or that parity fits, as far as a
    /// resynchronisation has come. Nothing may be in flight but that.
    ///
    /// # Errors
    /// Where they differ.
    pub(crate) fn check_copies(&self) -> Result<(), String> {
        // What is in flight is behind the place that was reached, so there is nothing to draw.
        let mut rng = Rng::new(0);
        let each = self.each.iter().map(|disk| disk.after_kill(&mut rng)).collect();
        let images = self.images(each);
        let all = Lba(self.first().capabilities().capacity.0);
        let reached = |known: &Members| Sectors(known.behind().unwrap_or(all).min(all).0);
        if let Some(array) = self.rows() {
            return images.check_parity(array, reached(&self.known[0]));
        }
        images.check_copies(&self.known.iter().map(reached).collect::<Vec<_>>())
    }
}
