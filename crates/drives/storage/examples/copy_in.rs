//! Copies a plain image into a volume as a busy client would: in requests of many sizes, in any
//! order, some of them durable, over older content. Then the program closes the volume, or ends
//! without, like a crash.
//!
//! `cargo run --release -p manylogs-storage --example copy_in -- IMAGE VOLUME [--close] [SEED]`

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use manylogs::{OpenOptions, Volume};
use manylogs_block::{
    BlockDevice, Extent, Hint, Payload, Request, Rng, SECTOR_BYTES, Sectors, to_usize,
};
use manylogs_storage::{FileDevice, OpenMode, Reactor};

/// Number of requests in flight together.
const TOGETHER: usize = 8;
/// Longest small and long requests. A volume logs the small ones, unless its threshold is lower.
const SMALL: u64 = 96;
const LONG: u64 = 4096;
/// One request in this many is long: about half of the data comes in long ones.
const LONG_ONE_IN: u64 = 24;
/// Byte of the older content that the copy covers.
const STALE: u8 = 0xa5;

type Any = Result<(), Box<dyn Error>>;

struct Arguments {
    image: PathBuf,
    volume: PathBuf,
    close: bool,
    seed: u64,
}

fn main() -> Any {
    let mut given: Vec<String> = std::env::args().skip(1).collect();
    let close = given.iter().any(|argument| argument == "--close");
    given.retain(|argument| argument != "--close");
    let (image, volume, seed) = match given.as_slice() {
        [image, volume] => (image, volume, "1"),
        [image, volume, seed] => (image, volume, seed.as_str()),
        _ => return Err("copy_in IMAGE VOLUME [--close] [SEED]".into()),
    };
    let (image, volume) = (image.into(), volume.into());
    run(Arguments { image, volume, close, seed: seed.parse()? })
}

fn run(arguments: Arguments) -> Any {
    let reactor = Reactor::new()?;
    let options = manylogs_storage::OpenOptions::new(OpenMode::Exclusive);
    let device = Rc::new(FileDevice::open(&reactor, &arguments.volume, &options)?);
    let runtime = reactor.handle();
    reactor.block_on(async move {
        let (volume, _) = Volume::open(runtime, device, &OpenOptions::default()).await?;
        let image = File::open(&arguments.image)?;
        let sectors = Sectors(image.metadata()?.len() / SECTOR_BYTES);
        if sectors > volume.capabilities().capacity {
            return Err("the image is larger than what the volume exports".into());
        }
        let mut rng = Rng::new(arguments.seed);
        soil(&volume, sectors, &mut rng).await?;
        copy(&volume, &image, sectors, &mut rng).await?;
        if arguments.close {
            volume.close().await?;
        }
        Ok(())
    })
}

/// Leaves old content at home, and gives it up with one discard. Zeroes of the image are then only
/// noted in the table.
async fn soil(volume: &Volume, sectors: Sectors, rng: &mut Rng) -> Any {
    let mut requests = Vec::new();
    for start in (0..sectors.0).step_by(to_usize(LONG)).filter(|_| rng.one_in(2)) {
        let extent = Extent::new(start, LONG.min(sectors.0 - start));
        requests.push(write(extent, vec![STALE; to_usize(extent.len.bytes())], false));
    }
    submit_all(volume, requests).await?;
    volume.submit(Request::Flush).await?;
    volume.submit(Request::Discard { extent: Extent::new(0, sectors.0), fua: false }).await?;
    volume.submit(Request::Flush).await?;
    Ok(())
}

async fn copy(volume: &Volume, image: &File, sectors: Sectors, rng: &mut Rng) -> Any {
    let (mut small, mut long) = (0, 0);
    for batch in shuffled(pieces(sectors, rng), rng).chunks(TOGETHER) {
        let mut requests = Vec::new();
        for extent in batch {
            let mut content = vec![0; to_usize(extent.len.bytes())];
            image.read_exact_at(&mut content, extent.start.0 * SECTOR_BYTES)?;
            if content.iter().any(|byte| *byte != 0) {
                let count = if extent.len.0 <= SMALL { &mut small } else { &mut long };
                *count += extent.len.bytes();
                requests.push(write(*extent, content, rng.one_in(2)));
            }
        }
        submit_all(volume, requests).await?;
    }
    volume.submit(Request::Flush).await?;
    println!("{small} bytes in small requests, {long} in long ones");
    Ok(())
}

/// Cuts the whole image at random sectors.
fn pieces(sectors: Sectors, rng: &mut Rng) -> Vec<Extent> {
    let (mut pieces, mut start) = (Vec::new(), 0);
    while start < sectors.0 {
        let most = if rng.one_in(LONG_ONE_IN) { LONG } else { SMALL };
        let len = (1 + rng.below(most)).min(sectors.0 - start);
        pieces.push(Extent::new(start, len));
        start += len;
    }
    pieces
}

fn shuffled(mut pieces: Vec<Extent>, rng: &mut Rng) -> Vec<Extent> {
    for i in (1..pieces.len()).rev() {
        pieces.swap(i, to_usize(rng.below(i as u64 + 1)));
    }
    pieces
}

fn write(extent: Extent, content: Vec<u8>, fua: bool) -> Request {
    Request::Write { extent, payload: Payload::bytes(content), fua, hint: Hint::None }
}

async fn submit_all(volume: &Volume, requests: Vec<Request>) -> Any {
    let mut requests = requests.into_iter();
    loop {
        let batch = requests.by_ref().take(TOGETHER).map(|request| volume.submit(request));
        let batch: Vec<_> = batch.collect();
        if batch.is_empty() {
            return Ok(());
        }
        for request in batch {
            request.await?;
        }
    }
}
