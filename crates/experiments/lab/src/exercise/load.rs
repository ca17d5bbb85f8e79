//! Loads of an exercise: each is a number of clients that wait for their answers.

use manylogs_block::{Extent, Hint, Lba, Payload, Request, Rng, Sectors};

/// 4 KiB.
const SMALL: u64 = 8;
/// 1 MiB.
const LARGE: u64 = 2048;
/// Files of the file server are spread over this much of the disk: what Postmark writes in
/// "Evolving ext4 for shingled disks", section 4.2.2, 37.89 GiB.
const FILES_SECTORS: u64 = 37_890 * 2048;
/// Sectors of the journal of that file system: 128 MiB.
const JOURNAL_SECTORS: u64 = 128 * 2048;
/// Sectors of a flexible group of blocks, at whose start metadata lies: 2 GiB.
const GROUP_SECTORS: u64 = 2 << 21;
/// Sectors of that metadata: 16 MiB.
const METADATA_SECTORS: u64 = 16 * 2048;

/// Kinds of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadKind {
    /// Writes of 4 KiB at random places of the whole drive.
    Random4k,
    /// Writes of 1 MiB, one behind the other.
    Stream,
    /// A file server as Postmark acts it: files of 4 KiB to 1 MiB are written, one in sixty
    /// requests goes to metadata and three in sixty to a journal (about the shares in Table 4 of
    /// "Evolving ext4 for shingled disks"), and one in sixty is a read that the host's memory
    /// cannot answer.
    Fileserver,
    /// A database beside a backup: random reads and durable writes of 8 KiB, and a sequential read.
    Mixed,
    /// A database like PostgreSQL beside a backup: each of its clients reads four pages of 8 KiB
    /// at random, appends 16 KiB durably to one write-ahead log, and then writes back two pages.
    Postgres,
}

impl LoadKind {
    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random4k => "random-4k",
            Self::Stream => "stream",
            Self::Fileserver => "fileserver",
            Self::Mixed => "mixed",
            Self::Postgres => "postgres",
        }
    }

    /// Clients, each with one request at a time.
    pub(super) const fn clients(self) -> u32 {
        match self {
            Self::Random4k => 32,
            Self::Stream => 4,
            Self::Fileserver | Self::Mixed => 8,
            Self::Postgres => 17,
        }
    }
}

/// Sectors of a database: 200 GiB.
const TABLES_SECTORS: u64 = 200 << 21;
/// Sectors of its write-ahead log: 1 GiB.
const WAL_SECTORS: u64 = 1 << 21;
/// Sectors of a page (8 KiB), and of a transaction's append to the write-ahead log.
const PAGE: u64 = 2 * SMALL;
const COMMIT: u64 = 4 * SMALL;
/// The repeated steps of a client of the database: reads, a commit, pages written back.
const TRANSACTION: [Step; 7] = {
    use Step::{Append, Read, WriteBack};
    [Read, Read, Read, Read, Append, WriteBack, WriteBack]
};

/// A step of a transaction.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read,
    Append,
    WriteBack,
}

/// The requests of a load.
#[derive(Clone, Debug)]
pub(super) struct Load {
    kind: LoadKind,
    capacity: u64,
    rng: Rng,
    /// Sector behind the last one of the stream, or of the backup.
    next: u64,
    /// ... and of the journal, or of the write-ahead log.
    journal: u64,
    /// Steps that each client has done.
    steps: Vec<usize>,
}

impl Load {
    pub(super) fn new(kind: LoadKind, capacity: Sectors, seed: u64) -> Self {
        let steps = (0..kind.clients()).map(|client| client as usize).collect();
        Self { kind, capacity: capacity.0, rng: Rng::new(seed), next: 0, journal: 0, steps }
    }

    /// The next request of client number `client`.
    pub(super) fn next(&mut self, client: u32) -> Request {
        match self.kind {
            LoadKind::Random4k => {
                let at = self.somewhere(0, self.capacity, SMALL);
                write(at, SMALL, false)
            }
            LoadKind::Stream => {
                let at = self.onwards(LARGE);
                write(at, LARGE, false)
            }
            LoadKind::Fileserver => self.of_files(),
            LoadKind::Mixed | LoadKind::Postgres if client == 0 => {
                let at = self.onwards(LARGE);
                read(at, LARGE)
            }
            LoadKind::Postgres => self.of_transaction(client),
            LoadKind::Mixed => {
                let at = self.somewhere(0, self.capacity, 2 * SMALL);
                if self.rng.below(2) == 0 {
                    read(at, 2 * SMALL)
                } else {
                    write(at, 2 * SMALL, true)
                }
            }
        }
    }

    /// The next step of a client of the database. Its tables lie in the middle of the drive, and
    /// its write-ahead log before them.
    fn of_transaction(&mut self, client: u32) -> Request {
        let tables = TABLES_SECTORS.min(self.capacity / 4) / PAGE * PAGE;
        let middle = self.capacity / 2 / PAGE * PAGE;
        let step = &mut self.steps[client as usize];
        let now = TRANSACTION[*step % TRANSACTION.len()];
        *step += 1;
        match now {
            Step::Read => read(self.somewhere(middle, tables, PAGE), PAGE),
            Step::WriteBack => write(self.somewhere(middle, tables, PAGE), PAGE, false),
            Step::Append => {
                let wal = WAL_SECTORS.min(self.capacity / 16) / COMMIT * COMMIT;
                let at = middle - wal + self.journal;
                self.journal = (self.journal + COMMIT) % wal;
                write(at, COMMIT, true)
            }
        }
    }

    fn of_files(&mut self) -> Request {
        let region = FILES_SECTORS.min(self.capacity / 2);
        let chance = self.rng.below(60);
        let len = SMALL * (1 + self.rng.below(LARGE / SMALL));
        if chance == 0 {
            let group = self.rng.below((region / GROUP_SECTORS).max(1)) * GROUP_SECTORS;
            let room = METADATA_SECTORS.min(region);
            let at = self.somewhere(group, room, SMALL);
            return write(at, SMALL, false);
        }
        if chance <= 3 {
            // The journal lies in the middle of the file system.
            let journal = JOURNAL_SECTORS.min(region / 8);
            let at = region / 2 / SMALL * SMALL + self.journal % journal;
            let len = len.min(journal - self.journal % journal);
            self.journal += len;
            return write(at, len, false);
        }
        let at = self.somewhere(0, region, LARGE);
        if chance == 4 { read(at, len) } else { write(at, len, false) }
    }

    fn onwards(&mut self, len: u64) -> u64 {
        if self.next + len > self.capacity {
            self.next = 0;
        }
        self.next += len;
        self.next - len
    }

    /// A place within `room` sectors from `start` on.
    fn somewhere(&mut self, start: u64, room: u64, len: u64) -> u64 {
        start + self.rng.below((room / len).max(1)) * len
    }
}

fn extent(at: u64, len: u64) -> Extent {
    Extent { start: Lba(at), len: Sectors(len) }
}

fn read(at: u64, len: u64) -> Request {
    Request::Read { extent: extent(at, len) }
}

fn write(at: u64, len: u64, fua: bool) -> Request {
    let payload = Payload::tags(at, Sectors(len));
    Request::Write { extent: extent(at, len), payload, fua, hint: Hint::None }
}
