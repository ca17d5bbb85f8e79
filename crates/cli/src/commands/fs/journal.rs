//! `manylogs fs journal`: a longer journal for ext4.

use manylogs_ext4::{BLOCK_BYTES, Error, JOURNAL_BLOCKS_MOST, Lengthened};
use manylogs_mlfs::adopt::AdoptError;
use manylogs_storage::OpenMode;

use super::adopt::{failure, open};
use crate::args::fs::FsJournalArgs;
use crate::failure::Failure;
use crate::output::print;

/// Blocks of 4096 bytes in a MiB.
const MIB: u32 = 256;

pub(super) fn run(args: &FsJournalArgs) -> Result<(), Failure> {
    let (source, bytes) = (&args.source, args.size.bytes());
    let blocks = u32::try_from(bytes / BLOCK_BYTES as u64).ok();
    let Some(blocks) = blocks.filter(|blocks| *blocks <= JOURNAL_BLOCKS_MOST) else {
        let most = JOURNAL_BLOCKS_MOST / MIB;
        return Err(Failure::input(format!("--size: a journal has {most} MiB at most")));
    };
    let (reactor, site) = open(source, OpenMode::Exclusive)?;
    let lengthened = reactor.block_on(async move { site.lengthen_journal(blocks).await });
    let Lengthened { before, blocks, pieces } = lengthened.map_err(|error| match error {
        AdoptError::FileSystem(Error::NoSpace) => Failure::input(format!(
            "{}: there is no room for a journal of {} MiB: ask for less, or remove files",
            source.display(),
            blocks / MIB
        )),
        error => failure(source, &error),
    })?;
    let pieces = if pieces == 1 { "one piece".to_owned() } else { format!("{pieces} pieces") };
    let (source, before, now) = (source.display(), before / MIB, blocks / MIB);
    print(&format!("{source}: its journal had {before} MiB, and has {now} MiB, in {pieces}\n"))
}
