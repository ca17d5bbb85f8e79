//! The content that a check reads: a file system as a mount would show it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Request};
use manylogs_ext4check::{Block, BlockNo, FileSource, Source};
use manylogs_mlfs::adopt::{AdoptError, Site, View};
use manylogs_storage::Reactor;

use super::adopt::failure;
use crate::failure::Failure;

/// Sectors of a block.
const BLOCK_SECTORS: u64 = 8;

/// A disk, with a view over it that has the changes a mount would make.
pub(super) struct Shown<'r> {
    home: FileSource,
    view: Option<(Rc<dyn BlockDevice>, Vec<Extent>)>,
    reactor: &'r Reactor,
}

impl<'r> Shown<'r> {
    /// The disk as it is.
    pub(super) fn as_it_is(reactor: &'r Reactor, source: &Path) -> Result<Self, Failure> {
        let named = |error: io::Error| Failure::at(source, &error);
        let home = File::open(source).and_then(FileSource::new).map_err(named)?;
        Ok(Self { home, view: None, reactor })
    }

    /// The disk after a recovery in memory alone, and the reason if a mount would fail.
    pub(super) fn recovered(
        reactor: &'r Reactor,
        source: &Path,
        site: &Site,
    ) -> Result<(Self, Option<AdoptError>), Failure> {
        let it = Self::as_it_is(reactor, source)?;
        let site = site.clone();
        let viewed = reactor.block_on(async move { View::of(&site).await });
        let mut view = viewed.map_err(|error| failure(source, &error))?;
        let problem = view.problem.take();
        Ok((Self { view: Some((view.device(), view.differs())), ..it }, problem))
    }
}

impl Source for Shown<'_> {
    fn blocks(&self) -> u64 {
        self.home.blocks()
    }

    fn read(&self, block: BlockNo, into: &mut Block) -> io::Result<()> {
        let extent = Extent::new(block.0 * BLOCK_SECTORS, BLOCK_SECTORS);
        let differs = |differs: &[Extent]| {
            let at = differs.partition_point(|part| part.end() <= extent.start);
            differs.get(at).is_some_and(|part| part.start < extent.end())
        };
        match &self.view {
            Some((device, differing)) if differs(differing) => {
                let answer = device.submit(Request::Read { extent });
                let read = self.reactor.block_on(answer).map_err(io::Error::other)?;
                let bytes = read.to_bytes().ok_or_else(|| io::Error::other("no content"))?;
                into.copy_from_slice(&bytes);
                Ok(())
            }
            _ => self.home.read(block, into),
        }
    }
}
