//! `manylogs format --gecko`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, Request, Sectors};
use manylogs_gecko::{
    CacheOptions, Chain, ChainOptions, ChainSettings, export_limit, segments_in_all,
    table_bytes_most,
};
use manylogs_serve::{ChainRefused, identity};
use manylogs_storage::OpenMode;

use super::refused;
use crate::args::gecko::GeckoArgs;
use crate::args::volume::FormatArgs;
use crate::commands::volume::format::{prepare, refuse_contents, refuse_zoned};
use crate::commands::volume::{Session, human, id_text};
use crate::failure::Failure;
use crate::output::print;

/// Default length of a segment: this share of a drive, within these bounds.
const SEGMENT_SHARE: u64 = 64;
const SEGMENT_LEAST: Sectors = Sectors(2048);
const SEGMENT_MOST: Sectors = Sectors(256 * 2048);
/// Length of the zeroed beginning of each drive, so that no older format is found there.
const HEAD: Sectors = Sectors(2048);

pub(crate) fn run(args: &FormatArgs) -> Result<(), Failure> {
    let paths: Vec<PathBuf> =
        [&args.volume.device].into_iter().chain(&args.gecko.others).cloned().collect();
    let mut created = Vec::new();
    let result = prepared(args, &paths, &mut created).and_then(|()| format(args, &paths));
    if result.is_err() {
        // Images without a chain are useless.
        created.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
    result
}

/// Creates the images, or checks that the devices exist; adds the created files to `created`.
/// Refuses a drive that is given twice.
fn prepared(
    args: &FormatArgs,
    paths: &[PathBuf],
    created: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    for path in paths {
        if prepare(args, path)? {
            created.push(path.clone());
        }
    }
    refuse_twice(paths)
}

fn refuse_twice(paths: &[PathBuf]) -> Result<(), Failure> {
    let mut seen: BTreeMap<(u64, u64), &PathBuf> = BTreeMap::new();
    for path in paths {
        let Some(identity) = identity(path) else { continue };
        if let Some(other) = seen.insert(identity, path) {
            let (other, path) = (other.display(), path.display());
            return Err(Failure::input(format!(
                "{other} and {path} are the same drive: give each drive of a chain once"
            )));
        }
    }
    Ok(())
}

fn format(args: &FormatArgs, paths: &[PathBuf]) -> Result<(), Failure> {
    let session = Session::open_with(&args.volume, OpenMode::Exclusive, args.physical_sector)?;
    let mut drives = vec![Rc::clone(&session.device)];
    for path in paths.iter().skip(1) {
        drives.push(session.beside(args, path)?);
    }
    let cache = args.gecko.cache.as_ref().map(|path| cache(&session, args, paths, path));
    let cache = cache.transpose()?;
    for path in paths {
        refuse_contents(path, args.force)?;
        refuse_zoned(path, "a chain writes its labels and roots in place")?;
    }
    let capacities: Vec<Sectors> =
        drives.iter().map(|drive| drive.capabilities().capacity).collect();
    let smallest = capacities.iter().copied().min().unwrap_or_default();
    let segment = args.gecko.segment.unwrap_or_else(|| segment_for(smallest));
    let links = if args.gecko.mirror { paths.len() / 2 } else { paths.len() };
    let limit = export_limit(links, smallest, segment);
    let half = Sectors(smallest.0 * links as u64 / 2 / 8 * 8);
    let export = Some(args.gecko.export.unwrap_or(half.min(limit)));
    let GeckoArgs { mirror, summaries, .. } = args.gecko;
    let options = ChainOptions { segment, export, mirror, summaries };
    let (runtime, settings) = (session.runtime(), ChainSettings::default());
    let made = session.run(async move {
        Chain::check(&drives, options)?;
        zero_heads(&drives).await?;
        let chain = Chain::create(runtime, drives, options, settings).await?;
        if let Some(cache) = &cache {
            chain.format_cache(cache, CacheOptions::default()).await?;
        }
        chain.close().await?;
        Ok(chain)
    });
    let chain = made.map_err(|error| refused(&ChainRefused::new(paths, error)))?;
    told(&chain, (paths, links), &capacities, (segment, limit))
}

/// Opens the SSD of the tail cache, which must be none of the drives.
fn cache(
    session: &Session,
    args: &FormatArgs,
    paths: &[PathBuf],
    path: &Path,
) -> Result<Rc<dyn BlockDevice>, Failure> {
    let is_it = |drive: &&PathBuf| identity(drive).is_some_and(|it| identity(path) == Some(it));
    if let Some(drive) = paths.iter().find(is_it) {
        let (path, drive) = (path.display(), drive.display());
        return Err(Failure::input(format!(
            "{path} is the drive {drive} of the chain: name an SSD of its own for the cache"
        )));
    }
    refuse_contents(path, args.force)?;
    session.beside(args, path)
}

/// A power of two near the share, so that large drives have segments of 64 MiB and more.
fn segment_for(smallest: Sectors) -> Sectors {
    let share = (smallest.0 / SEGMENT_SHARE).max(1);
    let power = 1 << share.ilog2();
    Sectors(power.clamp(SEGMENT_LEAST.0, SEGMENT_MOST.0))
}

/// Zeroes the beginnings of the drives: marks of other formats lie there, also behind the label.
async fn zero_heads(drives: &[Rc<dyn BlockDevice>]) -> Result<(), IoError> {
    for drive in drives {
        let len = HEAD.min(drive.capabilities().capacity);
        let extent = Extent::new(0, len.0);
        drive.submit(Request::WriteZeroes { extent, fua: false, if_fast: false }).await?;
    }
    Ok(())
}

fn told(
    chain: &Chain,
    (paths, links): (&[PathBuf], usize),
    capacities: &[Sectors],
    (segment, limit): (Sectors, Sectors),
) -> Result<(), Failure> {
    let export = chain.capabilities().capacity;
    let raw: u64 = capacities.iter().map(|sectors| sectors.bytes()).sum();
    let smallest = capacities.iter().copied().min().unwrap_or_default();
    let what = if links < paths.len() { "drives in pairs" } else { "drives" };
    let mut out = format!(
        "chain      {} of {} {what}\n\
         for data   {} ({:.1} % of the drives; cleaning bears {})\n\
         segments   of {}\n\
         memory     up to {} for the map, if all is written in blocks of 4 KiB\n",
        id_text(&chain.id()),
        paths.len(),
        human(export.bytes()),
        100.0 * export.bytes() as f64 / raw as f64,
        human(limit.bytes()),
        human(segment.bytes()),
        human(table_bytes_most(export, segments_in_all(links, smallest, segment))),
    );
    for (path, capacity) in paths.iter().zip(capacities) {
        out += &row(path, *capacity, smallest);
    }
    print(&out)
}

fn row(path: &Path, capacity: Sectors, smallest: Sectors) -> String {
    let unused = match capacity.0 - smallest.0 {
        0 => String::new(),
        more => format!(
            ", of which {} stay unused: the smallest drive counts",
            human(Sectors(more).bytes())
        ),
    };
    format!("drive      {} of {}{unused}\n", path.display(), human(capacity.bytes()))
}
