//! A chain that is closed writes nothing more: another one may be open on its drives.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{PIECE, SEGMENT, World, content, in_virtual_time, place};
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Hint, Nanos, Request, Rng, Sectors, completion,
};
use manylogs_gecko::{Chain, ChainOptions, ChainSettings};
use manylogs_sim::CrashDisk;

const PER_DRIVE: u64 = 24;
const PIECES: u64 = 200;
/// Writes under way at the same time.
const AT_ONCE: u64 = 40;

/// A drive that counts its writes.
struct Watched {
    below: CrashDisk,
    asked: Cell<u64>,
    under_way: Rc<Cell<u64>>,
}

impl BlockDevice for Watched {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        if !matches!(request, Request::Write { .. }) {
            return self.below.submit(request);
        }
        self.asked.set(self.asked.get() + 1);
        self.under_way.set(self.under_way.get() + 1);
        let (completer, answer) = completion();
        let (written, under_way) = (self.below.submit(request), Rc::clone(&self.under_way));
        self.below.runtime().spawn(async move {
            let result = written.await;
            under_way.set(under_way.get() - 1);
            completer.complete(result);
        });
        answer
    }
}

/// Overwrites pieces at random, several at the same time.
async fn overwrite(chain: &Chain, rng: &mut Rng, turn: u64) {
    let mut writes = Vec::new();
    for _ in 0..AT_ONCE {
        let piece = rng.below(PIECES);
        let (extent, payload) = (place(piece), content(piece, turn << 20));
        writes.push(chain.submit(Request::Write { extent, payload, fua: false, hint: Hint::None }));
    }
    for write in writes {
        write.await.unwrap();
    }
}

/// Closes a chain while it cleans, and looks what reaches its drives then.
async fn is_silent(world: World, turns: u64) {
    let below = world.disks[..3].iter().cloned();
    let watched = |below| Watched { below, asked: Cell::default(), under_way: Rc::default() };
    let drives: Vec<Rc<Watched>> = below.map(|disk| Rc::new(watched(disk))).collect();
    let of_chain = drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
    let export = Some(Sectors(PIECES * PIECE.0));
    let options = ChainOptions { segment: SEGMENT, export, mirror: false, summaries: true };
    let made = Chain::create(world.user.clone(), of_chain, options, world.settings);
    let (chain, mut rng) = (made.await.unwrap(), Rng::new(turns));
    for turn in 0..turns {
        overwrite(&chain, &mut rng, turn).await;
    }
    chain.close().await.unwrap();
    let under_way: u64 = drives.iter().map(|drive| drive.under_way.get()).sum();
    assert_eq!(under_way, 0, "writes are under way behind a close, turn {turns}");
    let asked = || drives.iter().map(|drive| drive.asked.get()).sum::<u64>();
    let before = asked();
    world.user.sleep(Nanos::from_secs(1)).await;
    assert_eq!(asked(), before, "a closed chain writes, turn {turns}");
}

pub(super) fn nothing_is_written_behind_a_close() {
    let settings = ChainSettings { buffer: Sectors(256), ..ChainSettings::default() };
    for turns in 8..60 {
        in_virtual_time(PER_DRIVE, settings, move |world| is_silent(world, turns));
    }
}

#[test]
fn a_closed_chain_writes_nothing() {
    nothing_is_written_behind_a_close();
}
