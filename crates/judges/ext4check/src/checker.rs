//! The state of one check: the file system and what was found so far.

use crate::finding::{Count, Finding, Location, Problem, Report, Unreadable};
use crate::groups::Group;
use crate::inodes::{Directory, Inode};
use crate::layout::{Geometry, incompat};
use crate::source::{Block, Source};
use crate::space::Space;
use crate::structures::Structure;
use crate::units::{BLOCK_BYTES, BlockNo, Ino};

/// The most findings that a report lists.
pub const FINDINGS_MAX: usize = 200;

pub(crate) type Checked<T> = Result<T, Unreadable>;

/// See the module.
pub(crate) struct Checker<'s> {
    pub(crate) source: &'s dyn Source,
    pub(crate) layout: Geometry,
    pub(crate) groups: Vec<Group>,
    pub(crate) space: Space,
    /// Number of the file system's own blocks in each group.
    pub(crate) system: Vec<u64>,
    /// Inodes in use, in order.
    pub(crate) inodes: Vec<Inode>,
    /// In order of their inodes.
    pub(crate) directories: Vec<Directory>,
    /// Blocks of attributes: the number of users found, and the one that the block says.
    pub(crate) attributes: std::collections::BTreeMap<BlockNo, (u32, u32)>,
    /// The blocks of the journal, and of the file of orphans.
    pub(crate) journal: Vec<BlockNo>,
    pub(crate) orphan_blocks: Vec<BlockNo>,
    pub(crate) report: Report,
    structures: Option<Vec<Structure>>,
}

impl<'s> Checker<'s> {
    pub(crate) fn new(source: &'s dyn Source, listing: bool) -> Checked<Self> {
        let mut block = [0; BLOCK_BYTES];
        if source.blocks() == 0 {
            return Err(Unreadable::NotExt4);
        }
        source.read(BlockNo(0), &mut block)?;
        let layout = Geometry::decode(&block, source.blocks())?;
        let mut checker = Self {
            source,
            space: Space::new(&layout),
            groups: Vec::new(),
            system: Vec::new(),
            inodes: Vec::new(),
            directories: Vec::new(),
            attributes: std::collections::BTreeMap::new(),
            journal: Vec::new(),
            orphan_blocks: Vec::new(),
            report: Report {
                needs_recovery: layout.has_incompat(incompat::RECOVER),
                ..Report::default()
            },
            structures: listing.then(Vec::new),
            layout,
        };
        checker.note(Structure::Superblock);
        checker.check_superblock(&block);
        Ok(checker)
    }

    /// Runs all steps, in an order in which each finds its input ready.
    pub(crate) fn run(mut self) -> Checked<(Report, Vec<Structure>)> {
        self.read_groups()?;
        self.system = self.count_system();
        self.read_inodes()?;
        self.check_named();
        self.check_journal()?;
        self.check_orphans()?;
        self.check_attribute_users();
        self.check_directories()?;
        self.check_connections();
        self.check_bitmaps()?;
        self.report.inodes = self.inodes.len() as u64;
        self.report.directories = self.directories.len() as u64;
        self.report.blocks = self.space.taken();
        Ok((self.report, self.structures.unwrap_or_default()))
    }

    pub(crate) fn find(&mut self, place: Location, problem: Problem) {
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(Finding { place, problem });
        } else {
            self.report.more += 1;
        }
    }

    /// Reports a count if it is wrong.
    pub(crate) fn count(&mut self, place: Location, what: &'static str, kept: u64, found: u64) {
        if kept != found {
            self.find(place, Problem::Count(what, Count { kept, found }));
        }
    }

    pub(crate) fn note(&mut self, structure: Structure) {
        if let Some(structures) = &mut self.structures {
            structures.push(structure);
        }
    }

    pub(crate) fn read(&self, block: BlockNo) -> Checked<Box<Block>> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        self.source.read(block, &mut bytes)?;
        Ok(bytes)
    }

    /// Takes a block for an inode. Returns false, and reports it, if that is impossible.
    pub(crate) fn take(&mut self, ino: Ino, block: BlockNo) -> bool {
        if block.0 == 0 || block.0 >= self.layout.blocks {
            self.find(Location::Block(ino, block), Problem::Misplaced("a block"));
            return false;
        }
        let fresh = self.space.take(block.0);
        if !fresh {
            self.find(Location::Block(ino, block), Problem::UsedTwice);
        }
        fresh
    }

    pub(crate) fn inode(&self, ino: Ino) -> Option<&Inode> {
        let at = self.inodes.binary_search_by_key(&ino, |inode| inode.ino).ok()?;
        self.inodes.get(at)
    }

    pub(crate) fn directory_at(&self, ino: Ino) -> Option<usize> {
        self.directories.binary_search_by_key(&ino, |directory| directory.ino).ok()
    }
}
