//! Threads for operations that the ring does not do, or for all operations if there is no ring.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::io::{Errno, ReadWriteFlags};

use crate::event::Event;
use crate::file_io::{Done, Op};

/// The most threads. A disk sorts its queue: a few requests at a time suffice, and more threads
/// gain little.
const THREADS_MAX: usize = 8;

/// A small thread pool. Dropping it waits for the operations under way.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    done: Mutex<Vec<(usize, Done)>>,
    any_done: AtomicBool,
    event: Arc<Event>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

struct Job {
    key: usize,
    file: Arc<File>,
    op: Op,
}

impl Pool {
    /// A pool without threads; `event` is notified when there are results.
    pub(crate) fn new(event: Arc<Event>) -> Self {
        let shared = Shared {
            queue: Mutex::default(),
            more: Condvar::new(),
            done: Mutex::default(),
            any_done: AtomicBool::new(false),
            event,
        };
        Self { shared: Arc::new(shared), threads: Vec::new() }
    }

    /// Hands `op` to a thread.
    pub(crate) fn start(&mut self, key: usize, file: Arc<File>, op: Op) {
        let mut queue = lock(&self.shared.queue);
        queue.jobs.push_back(Job { key, file, op });
        let short_of_threads = queue.jobs.len() > queue.idle && self.threads.len() < THREADS_MAX;
        drop(queue);
        if short_of_threads {
            self.grow();
        }
        self.shared.more.notify_one();
    }

    fn grow(&mut self) {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("manylogs-io".into());
        match thread.spawn(move || shared.work()) {
            Ok(thread) => self.threads.push(thread),
            // If no thread can be started, this one does the work: slowly, but it is done.
            Err(_) if self.threads.is_empty() => {
                while let Some(job) = lock(&self.shared.queue).jobs.pop_front() {
                    self.shared.finish(job);
                }
            }
            Err(_) => {}
        }
    }

    /// The operations that have ended since the last call.
    pub(crate) fn take_done(&self) -> Vec<(usize, Done)> {
        if !self.shared.any_done.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *lock(&self.shared.done))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported that itself.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            self.finish(job);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    fn finish(&self, job: Job) {
        let done = carry_out(&job.file, job.op);
        // This may close the file, so it must come before the last operation is reported.
        drop(job.file);
        lock(&self.done).push((job.key, done));
        self.any_done.store(true, Ordering::Release);
        self.event.notify();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while a lock is held, so what it guards is whole even when poisoned.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries out `op` in the calling thread.
pub(crate) fn carry_out(file: &File, op: Op) -> Done {
    match op {
        Op::Read { at, mut into } => {
            let mut slices = [IoSliceMut::new(into.bytes_mut())];
            let result = rustix::io::preadv2(file, &mut slices, at, ReadWriteFlags::empty());
            Done { result, buffer: Some(into) }
        }
        Op::Write { at, from, mode } => {
            let flags = if mode.durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let result = rustix::io::pwritev2(file, &[IoSlice::new(from.bytes())], at, flags);
            Done { result, buffer: from.into_buffer() }
        }
        Op::Sync => without_buffer(rustix::fs::fdatasync(file)),
        Op::Call(call) => without_buffer(call(file)),
    }
}

fn without_buffer(result: Result<(), Errno>) -> Done {
    Done { result: result.map(|()| 0), buffer: None }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;

    #[test]
    fn threads_are_few_however_much_there_is_to_do() {
        let event = Arc::new(Event::new().unwrap());
        let mut pool = Pool::new(event);
        let file = Arc::new(tempfile::tempfile().unwrap());
        // None of these ends before all threads are at work.
        let together = Arc::new(Barrier::new(THREADS_MAX));
        let jobs = 10 * THREADS_MAX;
        for key in 0..jobs {
            let together = Arc::clone(&together);
            let call = move |_: &File| {
                together.wait();
                Ok(())
            };
            pool.start(key, Arc::clone(&file), Op::Call(Box::new(call)));
        }
        assert_eq!(pool.threads.len(), THREADS_MAX);
        let mut done = Vec::new();
        while done.len() < jobs {
            done.extend(pool.take_done().into_iter().map(|(key, _)| key));
            std::thread::sleep(Duration::from_millis(1));
        }
        done.sort_unstable();
        assert_eq!(done, (0..jobs).collect::<Vec<_>>());
        assert_eq!(pool.threads.len(), THREADS_MAX);
    }
}
