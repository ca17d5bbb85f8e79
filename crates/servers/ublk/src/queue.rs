//! The thread that takes requests from the driver and returns the answers.

#![expect(unsafe_code, reason = "the library lends a descriptor as a number")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use io_uring::{opcode, types};
use libublk::io::{UblkDev, UblkIOCtx, UblkQueue};
use libublk::{BufDesc, BufDescList, UblkError as LibraryError, UblkIORes, UblkUringData};
use manylogs_block::{IoResult, Lba, Payload, Sectors};
use manylogs_serve::{Port, content};
use manylogs_storage::Event;
use rustix::io::Errno;

use crate::Cache;
use crate::translate::{Command, refusal};

/// There is one queue, because all requests go to one engine.
const QUEUE: u16 = 0;
/// Tag of ring entries that are not requests. The value does not matter.
const NO_TAG: u16 = 0;

/// State shared by the requests.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) port: Port,
    pub(crate) capacity: Sectors,
    pub(crate) cache: Cache,
}

/// Answers of the engine's thread that the queue's thread has to pass on.
struct Answers {
    list: Mutex<Vec<(u16, IoResult)>>,
    /// Notified when the list is not empty.
    event: Event,
}

impl Answers {
    fn new() -> io::Result<Self> {
        Ok(Self { list: Mutex::default(), event: Event::new()? })
    }

    fn list(&self) -> MutexGuard<'_, Vec<(u16, IoResult)>> {
        // No code that may panic runs under the lock.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called on the engine's thread.
    fn add(&self, tag: u16, result: IoResult) {
        let mut list = self.list();
        let first = list.is_empty();
        list.push((tag, result));
        drop(list);
        if first {
            self.event.notify();
        }
    }

    fn take(&self) -> Vec<(u16, IoResult)> {
        // Cleared before the list is taken: an answer added to an empty list sets it again.
        self.event.clear();
        std::mem::take(&mut self.list())
    }
}

/// Serves the device until it is stopped. `ready` gets the result of the start.
pub(crate) fn serve(
    dev: &UblkDev,
    context: &Context,
    ready: impl FnOnce(Result<(), LibraryError>),
) {
    match Queue::begin(dev, context) {
        Ok(queue) => {
            ready(Ok(()));
            queue.run();
        }
        Err(error) => ready(Err(error)),
    }
}

/// The queue, which lives on the thread that is registered with the driver.
struct Queue<'a> {
    queue: UblkQueue<'a>,
    /// The character device, through which data is copied.
    data: BorrowedFd<'a>,
    context: &'a Context,
    answers: Arc<Answers>,
}

impl<'a> Queue<'a> {
    fn begin(dev: &'a UblkDev, context: &'a Context) -> Result<Self, LibraryError> {
        // The driver gets no buffers, as the data is copied here.
        let buffers = BufDescList::Slices(None);
        let queue = UblkQueue::new(QUEUE, dev)?.submit_fetch_commands_unified(buffers)?;
        // SAFETY: the library keeps the character device open, as the first of its descriptors,
        // for as long as the device lives, which is borrowed for as long.
        let data = unsafe { BorrowedFd::borrow_raw(dev.tgt.fds[0]) };
        let this = Self { queue, data, context, answers: Arc::new(Answers::new()?) };
        this.watch_answers()?;
        Ok(this)
    }

    fn run(&self) {
        loop {
            let handled = self.queue.flush_and_wake_io_tasks(
                |user_data, completion, _| self.handle(user_data, completion.result()),
                1,
            );
            match handled {
                Ok(_) => {}
                // A signal came to this thread.
                Err(LibraryError::IOError(error)) if error.kind() == io::ErrorKind::Interrupted => {
                }
                // The driver has withdrawn all fetch commands: the device is stopped.
                Err(_) => return,
            }
        }
    }

    /// Handles an event of the ring: a request, or answers of the engine.
    fn handle(&self, user_data: u64, result: i32) {
        if user_data & UblkUringData::Target as u64 != 0 {
            for (tag, result) in self.answers.take() {
                self.pass_on(tag, &result);
            }
            // If the ring is broken, the next wait fails and ends the device.
            let _ = self.watch_answers();
        } else if result == 0 {
            let Ok(tag) = u16::try_from(UblkIOCtx::user_data_to_tag(user_data)) else { return };
            self.take_up(tag);
        }
    }

    /// Asks the ring to wake the thread when answers arrive.
    fn watch_answers(&self) -> Result<(), LibraryError> {
        let readable = rustix::event::PollFlags::IN.bits().into();
        let event = types::Fd(self.answers.event.as_raw_fd());
        let wake = opcode::PollAdd::new(event, readable).build();
        let user_data = UblkIOCtx::build_user_data(NO_TAG, 0, 0, true);
        self.queue.ublk_submit_sqe_sync(wake.user_data(user_data))
    }

    fn command(&self, tag: u16) -> Command {
        let described = self.queue.get_iod(tag);
        Command {
            op_flags: described.op_flags,
            start: Lba(described.start_sector),
            len: Sectors(described.nr_sectors.into()),
        }
    }

    fn take_up(&self, tag: u16) {
        let fetch = |len| self.fetch(tag, len);
        let (capacity, cache) = (self.context.capacity, self.context.cache);
        match self.command(tag).request(capacity, cache, fetch) {
            Ok(request) => {
                let answers = Arc::clone(&self.answers);
                self.context.port.submit(request, move |result| answers.add(tag, result));
            }
            Err(error) => self.complete(tag, refusal(error)),
        }
    }

    /// Copies the bytes of a write request from the kernel.
    fn fetch(&self, tag: u16, len: usize) -> io::Result<Payload> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match rustix::io::pread(self.data, &mut bytes[done..], position(tag, done)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Payload::bytes(bytes))
    }

    /// Copies the bytes of a read request to the kernel.
    fn bring(&self, tag: u16, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(self.data, &bytes[done..], position(tag, done)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn pass_on(&self, tag: u16, result: &IoResult) {
        let command = self.command(tag);
        let brought = match (command.reads(), result) {
            (Some(len), Ok(payload)) => match content(payload).get(..len) {
                Some(bytes) => self.bring(tag, bytes),
                None => Err(io::ErrorKind::UnexpectedEof.into()),
            },
            _ => Ok(()),
        };
        self.complete(
            tag,
            match brought {
                Ok(()) => command.answer(result),
                Err(_) => refusal(Errno::IO),
            },
        );
    }

    /// Answers the request, and asks for the next with the same tag.
    fn complete(&self, tag: u16, answer: i32) {
        let answer = Ok(UblkIORes::Result(answer));
        // Fails only for a kind of buffer that the device does not use.
        let _ = self.queue.complete_io_cmd_unified(tag, BufDesc::Slice(&[]), answer);
    }
}

/// Position of byte `offset` of the data of request `tag` in the character device.
fn position(tag: u16, offset: usize) -> u64 {
    UblkIOCtx::ublk_user_copy_pos(QUEUE, tag, u32::try_from(offset).unwrap_or(u32::MAX))
}
