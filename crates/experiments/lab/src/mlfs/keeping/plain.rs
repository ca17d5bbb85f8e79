//! What writes to ordinary files cost, with durable-only content in the logs and without: for the
//! benchmark of instructions.

use std::cell::Cell;
use std::sync::Arc;

use manylogs_block::Rng;

use super::super::disk::{MlfsError, Prepared};
use super::gate::{Amounts, Gate, LONG_PIECE};
use super::load::fill;
use super::run::{Host, KeepingCase};
use crate::replay::DriveSettings;

/// The drive, and the bytes of all logs.
const DRIVE: &str = "cheetah-15k5";
const LOGS: u64 = 160 << 20;
/// Pieces that live in the logs meanwhile.
const LIVE: u64 = 8;
/// Bytes that one sync makes durable.
const SYNC_BYTES: u64 = super::super::case::WRITES_PER_SYNC as u64 * 4096;

/// Makes `syncs` syncs of small writes to ordinary files. If `beside_kept`, some content of another
/// file is kept in the logs.
///
/// # Errors
/// Those of the simulated disk and its file system.
pub fn write_plain(beside_kept: bool, syncs: u64) -> Result<(), MlfsError> {
    let unknown = || MlfsError::Setting(format!("there is no drive {DRIVE}"));
    let profile = manylogs_disk::profile::find(DRIVE).ok().flatten().ok_or_else(unknown)?;
    let drive = DriveSettings::new(Arc::new(profile), false);
    let disk = KeepingCase { drive, logs: LOGS, gate: Gate::Pass, seed: 1 }.disk();
    let amounts = Amounts { logs: LOGS };
    let prepared = Prepared::of(&disk, move |fs| fill(fs, amounts))?;
    let host = Host::new(&prepared, disk, amounts)?;
    let (writer, mut rng) = (host.writer.clone(), Rng::new(1));
    host.world.run(async move {
        if beside_kept {
            let ino = writer.make("kept").await?;
            for at in 0..LIVE {
                writer.put(ino, at, LONG_PIECE).await?;
            }
        }
        writer.others(&mut rng, &Cell::new(false), syncs * SYNC_BYTES, false).await
    })?;
    Ok(())
}
