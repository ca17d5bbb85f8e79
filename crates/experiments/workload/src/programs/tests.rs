//! What each program asks of its files, recorded above files that are lists of lengths.

#![allow(clippy::panic, reason = "a test may panic")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng, Time};
use manylogs_sim::{Sim, Stopped, TaskOrder};

use super::*;

/// What a sync takes.
const SYNC: Nanos = Nanos::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create(FileId),
    Delete(FileId),
    Write { file: FileId, offset: u64, bytes: u64 },
    Zeroes(FileId, u64),
    Reserve(FileId, u64),
    Rename(FileId, FileId),
    Read(FileId),
    Sync(FileId),
    Flushed,
    Requested,
}

/// Files that fail if a program uses them wrongly.
struct Lengths {
    runtime: Handle,
    files: RefCell<BTreeMap<FileId, u64>>,
    steps: RefCell<Vec<Step>>,
    pace: Option<Pace>,
    until: Time,
    running: Cell<usize>,
}

impl Lengths {
    fn note(&self, step: Step) {
        self.steps.borrow_mut().push(step);
    }

    fn length(&self, file: FileId) -> Result<u64, String> {
        self.files.borrow().get(&file).copied().ok_or_else(|| format!("no {file:?}"))
    }

    fn is_free(&self, file: FileId) -> Result<(), String> {
        if self.files.borrow().contains_key(&file) { Err(format!("{file:?} is")) } else { Ok(()) }
    }
}

impl Files for Lengths {
    type Error = String;

    async fn create(&self, file: FileId) -> Result<(), String> {
        self.is_free(file)?;
        self.runtime.sleep(Nanos::from_micros(10)).await;
        self.note(Step::Create(file));
        self.files.borrow_mut().insert(file, 0);
        Ok(())
    }

    async fn delete(&self, file: FileId) -> Result<(), String> {
        self.length(file)?;
        self.note(Step::Delete(file));
        self.files.borrow_mut().remove(&file);
        Ok(())
    }

    async fn write(&self, file: FileId, offset: u64, bytes: u64) -> Result<(), String> {
        let length = self.length(file)?;
        if offset > length || bytes == 0 {
            return Err(format!("{bytes} bytes at {offset} of {length} of {file:?}"));
        }
        self.note(Step::Write { file, offset, bytes });
        self.files.borrow_mut().insert(file, length.max(offset + bytes));
        Ok(())
    }

    async fn write_zeroes(&self, file: FileId, bytes: u64) -> Result<(), String> {
        assert_eq!(self.length(file)?, 0, "only empty files are filled");
        self.note(Step::Zeroes(file, bytes));
        self.files.borrow_mut().insert(file, bytes);
        Ok(())
    }

    async fn reserve(&self, file: FileId, bytes: u64) -> Result<(), String> {
        self.length(file)?;
        self.note(Step::Reserve(file, bytes));
        Ok(())
    }

    async fn rename(&self, from: FileId, to: FileId) -> Result<(), String> {
        self.is_free(to)?;
        let length = self.length(from)?;
        // A name takes time, in which others go on.
        self.runtime.sleep(SYNC).await;
        self.note(Step::Rename(from, to));
        self.files.borrow_mut().remove(&from);
        self.files.borrow_mut().insert(to, length);
        Ok(())
    }

    async fn read(&self, file: FileId, bytes: u64) -> Result<(), String> {
        assert_eq!(self.length(file)?, bytes, "files are read whole");
        self.note(Step::Read(file));
        Ok(())
    }

    async fn sync(&self, file: FileId) -> Result<(), String> {
        self.length(file)?;
        self.runtime.sleep(SYNC).await;
        self.note(Step::Sync(file));
        Ok(())
    }

    async fn stat(&self, file: FileId) -> Result<(), String> {
        self.length(file).map(drop)
    }

    async fn admitted(&self) {
        if let Some(pace) = &self.pace {
            pace.turn(&self.runtime).await;
        }
    }

    fn done(&self, operation: Operation, _: Nanos) {
        match operation {
            Operation::Flush => self.note(Step::Flushed),
            Operation::Request => self.note(Step::Requested),
            Operation::Other => {}
        }
    }

    fn goes_on(&self) -> bool {
        self.runtime.now() < self.until
    }

    fn ended(&self, result: Result<(), String>) {
        result.unwrap_or_else(|error| panic!("{error}"));
        self.running.set(self.running.get() - 1);
    }
}

/// What a program does in so many seconds, at most at `rate` measured operations a second; and the
/// lengths of its files at the end.
fn steps(program: Program, seconds: u64, rate: Option<f64>) -> (Vec<Step>, BTreeMap<FileId, u64>) {
    let mut rng = Rng::new(11);
    let sim = Sim::new(1, TaskOrder::Fifo);
    let runtime = sim.handle(sim.node());
    let initial = program.initial(&mut rng);
    let files = Rc::new(Lengths {
        runtime: runtime.clone(),
        files: RefCell::new(initial.iter().copied().collect()),
        steps: RefCell::default(),
        pace: rate.map(|rate| Pace::new(rate, runtime.now()).making_up(Nanos::from_secs(1))),
        until: runtime.now() + Nanos::from_secs(seconds),
        running: Cell::new(0),
    });
    // Threads may end only after this call returned.
    files.running.set(program.start(&runtime, &files, &initial, &mut rng));
    let ended = sim.run_until(|| files.running.get() == 0);
    assert_eq!(ended, Stopped::Condition, "{program}: a thread waits for ever");
    (files.steps.take(), files.files.take())
}

fn named(name: &str) -> Program {
    name.parse().unwrap()
}

fn count(steps: &[Step], is_it: impl Fn(&Step) -> bool) -> usize {
    steps.iter().filter(|step| is_it(step)).count()
}

/// Offset and length of what was written to logs, or to the data.
fn writes(program: &Program, steps: &[Step], logs: bool) -> Vec<(u64, u64)> {
    let of = |step: &Step| match *step {
        Step::Write { file, offset, bytes } if program.is_log(file) == logs => {
            Some((offset, bytes))
        }
        _ => None,
    };
    steps.iter().filter_map(of).collect()
}

#[test]
fn every_program_does_the_same_with_the_same_seed_and_ends() {
    for name in Program::NAMES {
        let (first, _) = steps(named(name), 10, None);
        assert!(count(&first, |step| *step == Step::Requested) > 10, "{name}");
        assert_eq!(first, steps(named(name), 10, None).0, "{name}");
    }
}

/// Flushes and log writes go together: what a flush makes durable is in files that are logs.
#[test]
fn databases_sync_their_logs_at_each_flush_and_others_sync_nothing() {
    for name in Program::NAMES {
        let program = named(name);
        let (steps, _) = steps(program, 10, None);
        let synced =
            count(&steps, |step| matches!(step, Step::Sync(file) if program.is_log(*file)));
        let flushes = count(&steps, |step| *step == Step::Flushed);
        match name {
            "varmail" => assert!(flushes > 0 && synced == 0),
            "fileserver" | "postmark" | "kafka" => {
                assert_eq!(count(&steps, |step| matches!(step, Step::Sync(_))), 0, "{name}");
            }
            _ => assert!(flushes > 300 / 33 && synced >= flushes, "{name}: {synced}, {flushes}"),
        }
    }
}

#[test]
fn a_rate_is_reached_and_not_passed() {
    for name in ["mongodb", "postgres", "sqlite", "etcd", "innodb"] {
        let flushes = count(&steps(named(name), 20, Some(12.5)).0, |step| *step == Step::Flushed);
        assert!((245..=251).contains(&flushes), "{name}: {flushes}");
    }
}

#[test]
fn postgres_writes_whole_pages_and_overwrites_the_segments_that_it_renamed() {
    let program = Program::Postgres(Postgres {
        segment_bytes: 256 << 10,
        checkpoint: Nanos::from_secs(3),
        ..Postgres::default()
    });
    let (steps, files) = steps(program, 20, None);
    for (offset, bytes) in writes(&program, &steps, true) {
        assert!(offset % 8192 == 0 && bytes % 8192 == 0 && offset + bytes <= 256 << 10);
    }
    assert!(count(&steps, |step| matches!(step, Step::Rename(..))) > 10);
    let made = count(&steps, |step| matches!(step, Step::Create(_)));
    let filled = |step: &Step| matches!(step, Step::Zeroes(_, bytes) if *bytes == 256 << 10);
    assert_eq!(count(&steps, filled), made, "new segments are filled with zeroes");
    assert_eq!(files.len(), 1 + 5 + made, "segments are never deleted");
    // Whole pages are in the log, so data is written less often than the log.
    assert!(count(&steps, |step| *step == Step::Sync(DATA)) >= 5);
}

#[test]
fn innodb_goes_round_in_its_ring() {
    let program = Program::Innodb(Innodb { ring_bytes: 1 << 20, ..Innodb::default() });
    let (steps, files) = steps(program, 20, None);
    let written = writes(&program, &steps, true);
    assert!(written.iter().all(|(at, bytes)| at % 512 == 0 && bytes % 512 == 0));
    assert!(written.iter().filter(|(at, _)| *at == 0).count() > 3, "it wraps");
    assert_eq!(files[&FileId(1)], 1 << 20);
    let data = writes(&program, &steps, false);
    assert!((3000..=4000).contains(&data.len()), "200 pages a second: {}", data.len());
    assert!(data.iter().all(|(_, bytes)| *bytes == 16 << 10));
}

#[test]
fn sqlite_overwrites_its_log_after_each_checkpoint() {
    let program = named("sqlite");
    let (steps, files) = steps(program, 20, None);
    let written = writes(&program, &steps, true);
    let (first, later): (Vec<_>, Vec<_>) = written.iter().partition(|(offset, _)| *offset == 0);
    assert!(first.iter().all(|(_, bytes)| *bytes == 32 + 24 + 4096));
    assert!(later.iter().all(|(_, bytes)| *bytes == 24 + 4096));
    assert_eq!(files[&FileId(1)], 32 + 1000 * (24 + 4096));
    let checkpoints = count(&steps, |step| *step == Step::Sync(DATA));
    assert_eq!(checkpoints, written.len() / 1000, "one for each thousand pages");
    assert!(checkpoints >= 3);
}

#[test]
fn etcd_prepares_files_and_deletes_the_oldest() {
    let program = Program::Etcd(Etcd { segment_bytes: 256_000, ..Etcd::default() });
    let (steps, files) = steps(program, 20, None);
    let renamed = count(&steps, |step| matches!(step, Step::Rename(FileId(1), _)));
    assert!(renamed > 20, "{renamed}");
    assert_eq!(count(&steps, |step| *step == Step::Reserve(FileId(1), 256_000)), renamed);
    assert_eq!(count(&steps, |step| matches!(step, Step::Delete(_))), renamed - 4);
    assert_eq!(files.len(), 2 + 5, "data, the prepared file and five of the log");
    let commits = count(&steps, |step| *step == Step::Sync(DATA));
    assert!((180..=200).contains(&commits), "ten a second: {commits}");
}

#[test]
fn kafka_appends_batches_and_begins_new_files() {
    let program = Program::Kafka(Kafka { segment_bytes: 1 << 20, ..Kafka::default() });
    let (steps, files) = steps(program, 20, None);
    let written = writes(&program, &steps, false);
    assert!((2390..=2410).contains(&written.len()), "120 a second: {}", written.len());
    assert!(written.iter().all(|(_, bytes)| *bytes == 16 << 10));
    assert_eq!(files.len(), 12 + count(&steps, |step| matches!(step, Step::Create(_))));
    assert!(files.len() > 30 && files.values().all(|length| *length <= 1 << 20));
}

#[test]
fn postmark_keeps_its_rate_and_its_lengths() {
    let (steps, files) = steps(named("postmark"), 20, None);
    let done = count(&steps, |step| *step == Step::Requested);
    assert!((3990..=4001).contains(&done), "{done}");
    assert!(files.values().all(|length| (500..=10_000).contains(length)));
    let touched = |step: &Step| matches!(step, Step::Read(_) | Step::Write { offset: 1.., .. });
    assert_eq!(count(&steps, touched), done, "each transaction reads or appends");
    let changed = |step: &Step| matches!(step, Step::Create(_) | Step::Delete(_));
    assert_eq!(count(&steps, changed), done, "and makes or deletes");
}
