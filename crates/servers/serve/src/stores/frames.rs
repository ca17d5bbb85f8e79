//! Frames of a connection: one task reads them, another one writes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use manylogs_block::{Handle, Nanos, Signal};
use manylogs_everest::net::{FRAME_HEAD_BYTES, Frame, FrameError, FrameHead};
use manylogs_storage::Shelf;
use thiserror::Error;

use super::wire::Wire;
use crate::channel::{Duplex as _, Input};

/// Most pieces written in one call.
const SLICES: usize = 64;

/// Why a connection ended.
#[derive(Debug, Error)]
pub(super) enum LineError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("nothing was heard of it for {} ms", .0.0 / 1_000_000)]
    Silent(Nanos),
}

/// A connection of frames, for either side: its writing half.
pub(super) struct Line {
    wire: Rc<Wire>,
    outbox: RefCell<VecDeque<Bytes>>,
    held_bytes: Cell<usize>,
    /// Notified when there is more, or less, to write.
    pub(super) changed: Signal,
    over: Cell<bool>,
}

/// The reading half. When it is dropped the connection ends.
pub(super) struct Frames {
    input: Input<Wire>,
    shelf: Arc<Shelf>,
    line: Rc<Line>,
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.line.end();
    }
}

impl Line {
    /// Both sides of a connection; frames that are sent are written by a task of `runtime`.
    pub(super) fn start(runtime: &Handle, wire: Wire) -> (Rc<Self>, Frames) {
        let wire = Rc::new(wire);
        let input = Input::new(Rc::clone(&wire));
        let line = Rc::new(Self {
            wire,
            outbox: RefCell::default(),
            held_bytes: Cell::default(),
            changed: Signal::default(),
            over: Cell::default(),
        });
        let writing = Rc::clone(&line);
        runtime.spawn(async move {
            // After an error the reader fails as well.
            let _ = writing.write().await;
            writing.end();
        });
        (Rc::clone(&line), Frames { input, shelf: Arc::default(), line })
    }

    /// Queues a frame for sending; drops it if the connection has ended.
    pub(super) fn send(&self, frame: Frame) {
        if self.over.get() {
            return;
        }
        let pieces = frame.encode();
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        self.held_bytes.set(self.held_bytes.get() + bytes);
        self.outbox.borrow_mut().extend(pieces);
        self.changed.notify();
    }

    /// Bytes that were queued and that the kernel has not taken yet.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes.get()
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Ends the connection, for both halves.
    pub(super) fn end(&self) {
        self.over.set(true);
        self.wire.shut_down();
        self.outbox.take();
        self.held_bytes.set(0);
        self.changed.notify();
    }

    async fn write(&self) -> io::Result<()> {
        while !self.over.get() {
            let changed = self.changed.wait();
            if self.outbox.borrow().is_empty() {
                changed.await;
                continue;
            }
            // Clones: frames may be added while this waits.
            let pieces: Vec<Bytes> = self.outbox.borrow().iter().take(SLICES).cloned().collect();
            let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let written = self.wire.write_vectored(&slices).await?;
            self.written(written);
        }
        Ok(())
    }

    fn written(&self, mut written: usize) {
        self.held_bytes.set(self.held_bytes.get().saturating_sub(written));
        let mut outbox = self.outbox.borrow_mut();
        while let Some(piece) = outbox.front_mut() {
            let len = piece.len().min(written);
            piece.advance(len);
            written -= len;
            if !piece.is_empty() {
                break;
            }
            outbox.pop_front();
        }
        drop(outbox);
        self.changed.notify();
    }
}

impl Frames {
    /// The next frame, whose body has `most` bytes at most.
    pub(super) async fn next(&mut self, most: usize) -> Result<Frame, LineError> {
        let head: [u8; FRAME_HEAD_BYTES] = self.input.array().await?;
        let head = FrameHead::parse(&head, most)?;
        let body = self.input.bytes(&self.shelf, head.len()).await?;
        Ok(head.frame(body)?)
    }
}
