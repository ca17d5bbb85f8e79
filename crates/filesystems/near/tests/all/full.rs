//! Logs that become full while several files are written: every writer waits for room, and gets it.

use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{Handle, Payload, completion};
use manylogs_near::{Granularity, Near};

use crate::common::{file, images, with};

/// Length of each write: it fits into one record.
const CHUNK_BYTES: usize = 32 << 10;
/// Writers at the same time.
const WRITERS: u8 = 4;
/// Writes of each writer: together they write several times what the logs hold.
const CHUNKS: u64 = 200;

async fn write_and_sync(near: Rc<Near>, name: u8) {
    let ino = file(near.fs(), &[b'f', b'0' + name]).await;
    for number in 0..CHUNKS {
        // The same places again and again, so that the file system does not become full.
        let offset = number % 8 * CHUNK_BYTES as u64;
        let content = Bytes::from(vec![name; CHUNK_BYTES]);
        near.fs().write(ino, offset, content).await.unwrap();
        near.fs().sync(ino).await.unwrap();
    }
}

async fn all_write(near: Rc<Near>, runtime: Handle) -> u64 {
    let mut ends = Vec::new();
    for name in 0..WRITERS {
        let (completer, end) = completion();
        let near = Rc::clone(&near);
        runtime.spawn(async move {
            write_and_sync(near, name).await;
            completer.complete(Ok(Payload::default()));
        });
        ends.push(end);
    }
    for end in ends {
        end.await.unwrap();
    }
    near.fs().journal_stats().log_bytes
}

#[test]
fn writers_wait_for_room_in_full_logs_and_get_it() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Blocks, |near, _, runtime| async move {
        let written = all_write(Rc::clone(&near), runtime).await;
        let logs: u64 =
            near.volume().log_occupancy().iter().map(|log| log.region.len.bytes()).sum();
        assert!(written > 2 * logs, "{written} bytes do not fill logs of {logs} twice");
    });
}
